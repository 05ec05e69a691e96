// Input normalisation: crop, resize, colours, erasing and mixing; and dropout.

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "../dropout_key.hpp"
#include "../reference/kernels.hpp"
#include "../sample_mix.hpp"
#include "loops/loops.hpp"
#include "parallel.hpp"
#include "renai/base/check.hpp"
#include "renai/tensor/slot_layout.hpp"
#include "tables.hpp"

namespace renai::cpu {
namespace {

Offer<Match> match_normalize(const Scope& scope, std::size_t first) {
  const ComputeNode* node = scope.node(first);
  if (node == nullptr || node->op != OpKind::normalize_input) return Offer<Match>::refuse("not an input");
  return Match{1, node->inputs, node->outputs, {}};
}

/// Output pixels of a row that are mixed at a time, on the stack.
constexpr std::int64_t kPiecePixels = 128;

/// One axis of the bilinear resize: two crop positions and the weight of the second.
struct Tap {
  std::int64_t low, high;
  float weight;
};

/// Half-pixel centres, the crop's edge repeated.
Tap tap_at(std::int64_t out, double scale, std::int64_t crop_extent) {
  const double centre = (static_cast<double>(out) + 0.5) * scale - 0.5;
  const double position = std::clamp(centre, 0.0, static_cast<double>(crop_extent - 1));
  const auto low = static_cast<std::int64_t>(position);
  return {low, std::min(low + 1, crop_extent - 1), static_cast<float>(position - static_cast<double>(low))};
}

/// The same with places in a row of pixels, for one column of the network's input.
struct ColumnTap {
  std::int64_t left, right;
  float left_weight, right_weight;
};

struct WeightedRow {
  const std::uint8_t* row;
  float weight;
};

/// Columns of the image at work and of its partner. One a thread and kept, so that the steady state allocates nothing.
struct ImageTaps {
  std::int64_t sample = -1;
  std::vector<ColumnTap> taps;
};
thread_local std::array<ImageTaps, 2> tap_cache;

/// One shard's images, cropped, resized, flipped, normalised, erased and mixed.
struct Normalize {
  const std::byte* slot;
  SlotLayout layout;
  float* x;
  std::int64_t h, w, c;
  std::array<float, 4> mean, inv_std;

  const SampleParams& sample(std::int64_t n) const {
    return reinterpret_cast<const SampleParams*>(slot + layout.params_offset)[n];
  }

  void image(std::int64_t n) const {
    for (ImageTaps& taps : tap_cache) taps.sample = -1;
    for (std::int64_t r = 0; r < h; ++r) row(n, r, x + (n * h + r) * w * c);
  }

  void row(std::int64_t n, std::int64_t r, float* out) const {
    const SampleParams& one = sample(n);
    const std::int64_t partner = one.mix_partner;
    const auto& box = one.mix_box;
    if (partner < 0 || (box[2] > 0 && !box_holds(box, static_cast<std::int32_t>(r), box[1]))) {
      span(n, r, 0, w, out);
    } else if (box[2] > 0) {
      const std::int64_t first = box[1], end = first + box[3];
      span(n, r, 0, first, out);
      span(partner, r, first, end, out + first * c);
      span(n, r, end, w, out + end * c);
    } else {
      blend(n, partner, r, one.mix_lambda, out);
    }
  }

  void blend(std::int64_t n, std::int64_t partner, std::int64_t r, float share, float* out) const {
    std::array<float, kPiecePixels * 4> other;
    span(n, r, 0, w, out);
    for (std::int64_t first = 0; first < w; first += kPiecePixels) {
      const std::int64_t end = std::min(w, first + kPiecePixels);
      span(partner, r, first, end, other.data());
      float* own = out + first * c;
      for (std::int64_t i = 0; i < (end - first) * c; ++i)
        own[i] = share * own[i] + (1.0f - share) * other[static_cast<std::size_t>(i)];
    }
  }

  /// Columns [first, end) of row r of image n.
  void span(std::int64_t n, std::int64_t r, std::int64_t first, std::int64_t end, float* out) const {
    const SampleParams& one = sample(n);
    if (one.crop_h == h && one.crop_w == w && one.colour == 0) {
      copied(n, r, first, end, out);
    } else {
      resized(n, r, first, end, out);
    }
    if (box_holds(one.erase_box, static_cast<std::int32_t>(r), one.erase_box[1])) {
      const std::int64_t left = std::clamp<std::int64_t>(one.erase_box[1], first, end);
      const std::int64_t right = std::clamp<std::int64_t>(one.erase_box[1] + one.erase_box[3], left, end);
      std::fill(out + (left - first) * c, out + (right - first) * c, 0.0f);
    }
  }

  const std::uint8_t* pixels_of(std::int64_t n) const {
    return reinterpret_cast<const std::uint8_t*>(slot + layout.images_offset) + n * layout.h * layout.w * layout.c;
  }

  /// Any crop, with colours.
  void resized(std::int64_t n, std::int64_t r, std::int64_t first, std::int64_t end, float* out) const {
    const SampleParams& one = sample(n);
    const Tap ty = tap_at(r, static_cast<double>(one.crop_h) / static_cast<double>(h), one.crop_h);
    const auto weighted = [&](std::int64_t y, float weight) {
      const bool inside = y >= 0 && y < layout.h;
      return WeightedRow{pixels_of(n) + (inside ? y : 0) * layout.w * c, inside ? weight : 0.0f};
    };
    const WeightedRow top = weighted(one.crop_y + ty.low, 1.0f - ty.weight);
    const WeightedRow bottom = weighted(one.crop_y + ty.high, ty.weight);
    const std::vector<ColumnTap>& taps = taps_of(n);
    const std::span<const ColumnTap> part(taps.data() + first, static_cast<std::size_t>(end - first));
    switch (c) {
      case 1: return resize_row<1>(top, bottom, part, one, out);
      case 2: return resize_row<2>(top, bottom, part, one, out);
      case 3: return resize_row<3>(top, bottom, part, one, out);
      default: return resize_row<4>(top, bottom, part, one, out);
    }
  }

  template <std::int64_t kChannels>
  void resize_row(const WeightedRow& top, const WeightedRow& bottom, std::span<const ColumnTap> taps,
                  const SampleParams& one, float* out) const {
    for (const ColumnTap& tap : taps) {
      std::array<float, 4> pixel;
      for (std::int64_t ch = 0; ch < kChannels; ++ch) {
        const auto across = [&tap, ch](const std::uint8_t* row) {
          return tap.left_weight * static_cast<float>(row[tap.left + ch]) +
                 tap.right_weight * static_cast<float>(row[tap.right + ch]);
        };
        pixel[static_cast<std::size_t>(ch)] = top.weight * across(top.row) + bottom.weight * across(bottom.row);
      }
      if constexpr (kChannels == 3) map_colour(one, pixel.data());
      for (std::size_t ch = 0; ch < kChannels; ++ch) out[ch] = (pixel[ch] - mean[ch]) * inv_std[ch];
      out += kChannels;
    }
  }

  /// Of the network's columns in image n: computed once for all rows of an image.
  const std::vector<ColumnTap>& taps_of(std::int64_t n) const {
    for (const ImageTaps& image : tap_cache) {
      if (image.sample == n) return image.taps;
    }
    ImageTaps& place = tap_cache[tap_cache[0].sample < 0 ? 0 : 1];
    const SampleParams& one = sample(n);
    const double scale = static_cast<double>(one.crop_w) / static_cast<double>(w);
    place.sample = n;
    place.taps.resize(static_cast<std::size_t>(w));
    for (std::int64_t at = 0; at < w; ++at) {
      const Tap tap = tap_at(one.flip != 0 ? w - 1 - at : at, scale, one.crop_w);
      const std::int64_t left = one.crop_x + tap.low, right = one.crop_x + tap.high;
      // A pixel outside of the image has no weight; what is read instead is any of the row.
      place.taps[static_cast<std::size_t>(at)] = {
          std::clamp<std::int64_t>(left, 0, layout.w - 1) * c, std::clamp<std::int64_t>(right, 0, layout.w - 1) * c,
          left >= 0 && left < layout.w ? 1.0f - tap.weight : 0.0f, right >= 0 && right < layout.w ? tap.weight : 0.0f};
    }
    return place.taps;
  }

  /// A crop of the network's size. What it holds outside of the image reads as pixel value 0.
  void copied(std::int64_t n, std::int64_t r, std::int64_t first, std::int64_t end, float* out) const {
    const SampleParams& one = sample(n);
    const bool flip = one.flip != 0;
    const std::int64_t y = one.crop_y + r;
    const std::int64_t low = std::clamp<std::int64_t>(-std::int64_t{one.crop_x}, 0, w);
    const std::int64_t high = std::clamp<std::int64_t>(layout.w - one.crop_x, low, w);
    const bool inside = y >= 0 && y < layout.h;
    const std::int64_t from = inside ? std::clamp(flip ? w - high : low, first, end) : end;
    const std::int64_t to = inside ? std::clamp(flip ? w - low : high, from, end) : end;
    outside(out, from - first);
    if (from < to) {
      const std::int64_t column = one.crop_x + (flip ? w - to : from);
      machine_loops().normalize_row(pixels_of(n) + (y * layout.w + column) * c, out + (from - first) * c, to - from, c,
                                    mean.data(), inv_std.data(), flip);
    }
    outside(out + (to - first) * c, end - to);
  }

  void outside(float* out, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t ch = 0; ch < c; ++ch) {
        const auto k = static_cast<std::size_t>(ch);
        out[i * c + ch] = (0.0f - mean[k]) * inv_std[k];
      }
    }
  }

  /// True when boxes, partners and colours are such as a loader draws; the rest is the reference's.
  bool is_plain(std::int64_t images) const {
    const auto* samples = reinterpret_cast<const SampleParams*>(slot + layout.params_offset);
    return std::all_of(samples, samples + images, [this, images](const SampleParams& one) {
      const auto& box = one.mix_box;
      const bool within = box[1] >= 0 && box[3] >= 0 && std::int64_t{box[1]} + box[3] <= w;
      const bool crop = one.crop_h > 0 && one.crop_w > 0 && (one.colour == 0 || c == 3);
      return crop && one.mix_partner < images && within;
    });
  }
};

Offer<Kernel> make_normalize(const Site& site) {
  const ComputeNode& node = site.node();
  const Shape& x = site.shape(node.outputs[0]);
  if (x.c() > 4) return Offer<Kernel>::refuse("more than four channels");
  Kernel kernel;
  kernel.bind = [&node, x, threads = site.threads()](const Operands& at) -> Call {
    const auto& params = std::get<InputParams>(node.params);
    const SlotLayout& layout = at.context->plan->slot;
    RENAI_CHECK(x.n() <= layout.rows && x.c() == layout.c, "the network's input fits its slot");
    Normalize normalize{at.inputs[0], layout, at.out(0), x.h(), x.w(), x.c(), params.mean, {}};
    for (std::size_t ch = 0; ch < 4; ++ch) normalize.inv_std[ch] = 1.0f / params.std[ch];
    return [normalize, threads, images = x.n(), other = reference::bind_kernel(*at.context, node)] {
      if (!normalize.is_plain(images)) return other();
      parallel_ranges(threads, images, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t n = begin; n < end; ++n) normalize.image(n);
      });
    };
  };
  return kernel;
}

Offer<Match> match_dropout(const Scope& scope, std::size_t first) {
  const ComputeNode* node = scope.node(first);
  if (node == nullptr || node->op != OpKind::dropout) return Offer<Match>::refuse("not a dropout");
  Match match{1, node->inputs, node->outputs, {}};
  if (scope.last_use(node->inputs[0], first)) match.aliases.push_back({node->outputs[0], node->inputs[0]});
  return match;
}

/// Forward and backward are the same map: values times mask times scale.
Offer<Kernel> make_dropout(const Site& site) {
  const DropoutParams params = std::get<DropoutParams>(site.node().params);
  const std::int64_t elems = site.shape(site.node().inputs[0]).elems();
  Kernel kernel;
  kernel.bind = [=, threads = site.threads()](const Operands& at) -> Call {
    const auto* control = reinterpret_cast<const ControlBlock*>(at.inputs[1]);
    return [=, x = at.in(0), y = at.out(0)] {
      const float scale = dropout_scale(params.p);
      parallel_elems(threads, elems, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t first = begin; first < end; first += kDropoutBlockElems) {
          const PhiloxBlock words = dropout_block(*control, params.layer, first / kDropoutBlockElems);
          const std::int64_t count = std::min(kDropoutBlockElems, end - first);
          for (std::int64_t i = 0; i < count; ++i) {
            const bool keep = dropout_keeps(words[static_cast<std::size_t>(i)], params.p);
            y[first + i] = keep ? x[first + i] * scale : 0.0f;
          }
        }
      });
    };
  };
  return kernel;
}

}  // namespace

std::vector<Implementation> input_implementations() {
  return {{"own.normalize_input", match_normalize, make_normalize}, {"own.dropout", match_dropout, make_dropout}};
}

}  // namespace renai::cpu
