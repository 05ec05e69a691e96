// Input normalisation of crops that need no resize, and dropout.

#include <algorithm>
#include <array>

#include "../dropout_key.hpp"
#include "../reference/kernels.hpp"
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

/// One shard's images, cropped at their own size, flipped and normalised.
struct Normalize {
  const std::byte* slot;
  SlotLayout layout;
  float* x;
  std::int64_t h, w, c;
  std::array<float, 4> mean, inv_std;

  void image(std::int64_t n) const {
    const SampleParams& sample = reinterpret_cast<const SampleParams*>(slot + layout.params_offset)[n];
    const auto* pixels =
        reinterpret_cast<const std::uint8_t*>(slot + layout.images_offset) + n * layout.h * layout.w * layout.c;
    for (std::int64_t r = 0; r < h; ++r) row(pixels, sample, r, x + (n * h + r) * w * c);
  }

  /// Columns of the crop outside of the image read as pixel value 0.
  void row(const std::uint8_t* pixels, const SampleParams& sample, std::int64_t r, float* out) const {
    const bool flip = sample.flip != 0;
    const std::int64_t y = sample.crop_y + r;
    const std::int64_t low = std::clamp<std::int64_t>(-std::int64_t{sample.crop_x}, 0, w);
    const std::int64_t high = std::clamp<std::int64_t>(layout.w - sample.crop_x, low, w);
    const bool inside = y >= 0 && y < layout.h && low < high;
    const std::int64_t from = inside ? (flip ? w - high : low) : w, to = inside ? (flip ? w - low : high) : w;
    outside(out, from);
    if (!inside) return;
    machine_loops().normalize_row(pixels + (y * layout.w + sample.crop_x + low) * c, out + from * c, to - from, c,
                                  mean.data(), inv_std.data(), flip);
    outside(out + to * c, w - to);
  }

  void outside(float* out, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t ch = 0; ch < c; ++ch) {
        const auto k = static_cast<std::size_t>(ch);
        out[i * c + ch] = (0.0f - mean[k]) * inv_std[k];
      }
    }
  }

  /// True when no image is resized.
  bool same_size(std::int64_t images) const {
    const auto* samples = reinterpret_cast<const SampleParams*>(slot + layout.params_offset);
    return std::all_of(samples, samples + images,
                       [this](const SampleParams& one) { return one.crop_h == h && one.crop_w == w; });
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
    return [normalize, threads, images = x.n(), resize = reference::bind_kernel(*at.context, node)] {
      if (!normalize.same_size(images)) return resize();
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
