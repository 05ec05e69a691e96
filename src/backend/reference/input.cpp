// unpack_slot and normalize_input.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "../sample_mix.hpp"
#include "kernels.hpp"
#include "renai/base/check.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai::reference {
namespace {

struct UnpackSlot {
  const std::byte* slot;
  SlotLayout layout;
  std::int64_t rows;
  std::int32_t *labels, *mix_labels;
  float *mix_lambda, *sample_weights;
  std::byte* control;

  void operator()() const {
    const auto* slot_labels = reinterpret_cast<const std::int32_t*>(slot + layout.labels_offset);
    const auto* params = reinterpret_cast<const SampleParams*>(slot + layout.params_offset);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t partner = params[row].mix_partner;
      RENAI_CHECK(partner < rows, "a mix partner lies in the same shard");
      labels[row] = slot_labels[row];
      mix_labels[row] = slot_labels[partner < 0 ? row : partner];
      mix_lambda[row] = params[row].mix_lambda;
    }
    std::memcpy(sample_weights, slot + layout.weights_offset, static_cast<std::size_t>(rows) * sizeof(float));
    std::memcpy(control, slot + layout.control_offset, sizeof(ControlBlock));
  }
};

/// One axis of the bilinear resize: two crop positions and the weight of the second.
struct Tap {
  std::int64_t low, high;
  double weight;
};

/// Half-pixel centres, the crop's edge repeated. Equal sizes give the position itself.
Tap tap_at(std::int64_t out, std::int64_t out_extent, std::int64_t crop_extent) {
  const double scale = static_cast<double>(crop_extent) / static_cast<double>(out_extent);
  const double centre = (static_cast<double>(out) + 0.5) * scale - 0.5;
  const double position = std::clamp(centre, 0.0, static_cast<double>(crop_extent - 1));
  const auto low = static_cast<std::int64_t>(position);
  return {low, std::min(low + 1, crop_extent - 1), position - static_cast<double>(low)};
}

struct NormalizeInput {
  const std::byte* slot;
  SlotLayout layout;
  View x;
  InputParams params;

  /// A pixel of the stored image in crop coordinates; 0 outside of the image.
  double pixel(const std::uint8_t* image, const SampleParams& sample, std::int64_t y, std::int64_t x_at,
               std::int64_t channel) const {
    const std::int64_t row = sample.crop_y + y, column = sample.crop_x + x_at;
    if (row < 0 || row >= layout.h || column < 0 || column >= layout.w) return 0.0;
    return image[(row * layout.w + column) * layout.c + channel];
  }

  /// The channels of image n at a pixel of the network's input; 0 where it was erased.
  std::array<double, 4> values(std::int64_t n, std::int64_t h, std::int64_t w) const {
    std::array<double, 4> result{};
    const SampleParams& sample = samples()[n];
    if (box_holds(sample.erase_box, static_cast<std::int32_t>(h), static_cast<std::int32_t>(w))) return result;
    const auto* image = reinterpret_cast<const std::uint8_t*>(slot + layout.images_offset) + n * image_bytes();
    const Tap ty = tap_at(h, x.h, sample.crop_h);
    const Tap tx = tap_at(sample.flip != 0 ? x.w - 1 - w : w, x.w, sample.crop_w);
    for (std::int64_t c = 0; c < x.c; ++c) {
      const double top = (1.0 - tx.weight) * pixel(image, sample, ty.low, tx.low, c) +
                         tx.weight * pixel(image, sample, ty.low, tx.high, c);
      const double bottom = (1.0 - tx.weight) * pixel(image, sample, ty.high, tx.low, c) +
                            tx.weight * pixel(image, sample, ty.high, tx.high, c);
      result[static_cast<std::size_t>(c)] = (1.0 - ty.weight) * top + ty.weight * bottom;
    }
    map_colour(sample, result.data());
    for (std::size_t channel = 0; channel < static_cast<std::size_t>(x.c); ++channel) {
      result[channel] = (result[channel] - double{params.mean[channel]}) / double{params.std[channel]};
    }
    return result;
  }

  void mix(std::int64_t n, std::int64_t h, std::int64_t w) const {
    const SampleParams& sample = samples()[n];
    const double share = own_share(sample, static_cast<std::int32_t>(h), static_cast<std::int32_t>(w));
    std::array<double, 4> own{}, partner{};
    if (share > 0.0) own = values(n, h, w);
    if (share < 1.0) partner = values(sample.mix_partner, h, w);
    for (std::int64_t c = 0; c < x.c; ++c) {
      const auto channel = static_cast<std::size_t>(c);
      x.at(n, h, w)[c] = static_cast<float>(share * own[channel] + (1.0 - share) * partner[channel]);
    }
  }

  void operator()() const {
    for (std::int64_t n = 0; n < x.n; ++n) {
      RENAI_CHECK(samples()[n].crop_h > 0 && samples()[n].crop_w > 0, "a sample's crop box is not empty");
      RENAI_CHECK(samples()[n].mix_partner < x.n, "a mix partner lies in the same shard");
      RENAI_CHECK(samples()[n].colour == 0 || x.c == 3, "colours are mapped in images of three channels");
    }
    for (std::int64_t n = 0; n < x.n; ++n) {
      for (std::int64_t h = 0; h < x.h; ++h) {
        for (std::int64_t w = 0; w < x.w; ++w) mix(n, h, w);
      }
    }
  }

  const SampleParams* samples() const { return reinterpret_cast<const SampleParams*>(slot + layout.params_offset); }
  std::int64_t image_bytes() const { return layout.h * layout.w * layout.c; }
};

}  // namespace

Kernel bind_unpack_slot(const Operands& operands) {
  if (operands.node().pass != Pass::forward) refuse_pass(operands.node());
  const MemoryPlan& plan = *operands.context().plan;
  UnpackSlot kernel{};
  kernel.slot = operands.in_bytes(0);
  kernel.layout = plan.slot;
  kernel.rows = plan.tensor(operands.node().outputs.at(0)).shape.elems();
  RENAI_CHECK(kernel.rows <= plan.slot.rows, "the shard fits its slot");
  kernel.labels = reinterpret_cast<std::int32_t*>(operands.out_bytes(0));
  kernel.mix_labels = reinterpret_cast<std::int32_t*>(operands.out_bytes(1));
  kernel.mix_lambda = reinterpret_cast<float*>(operands.out_bytes(2));
  kernel.sample_weights = reinterpret_cast<float*>(operands.out_bytes(3));
  kernel.control = operands.out_bytes(4);
  return kernel;
}

Kernel bind_normalize_input(const Operands& operands) {
  if (operands.node().pass != Pass::forward) refuse_pass(operands.node());
  NormalizeInput kernel{operands.in_bytes(0), operands.context().plan->slot, operands.out(0),
                        operands.params<InputParams>()};
  RENAI_CHECK(kernel.x.n <= kernel.layout.rows && kernel.x.c == kernel.layout.c && kernel.x.c <= 4,
              "the network's input fits its slot");
  return kernel;
}

}  // namespace renai::reference
