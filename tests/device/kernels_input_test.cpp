// The slot's contents on the GPU against the definitions in fp64.

#include <cmath>

#include "../../src/backend/cuda/kernels/input.hpp"
#include "kernel_case.hpp"

namespace renai::cuda {
namespace {

using testing::DeviceArray;
using testing::same_bits;

/// A slot on the host, with random pixels and labels.
struct Slot {
  SlotLayout layout;
  std::vector<std::byte> bytes;

  Slot(std::mt19937& random, std::int64_t rows, std::int64_t h, std::int64_t w, std::int64_t c)
      : layout(SlotLayout::make(rows, h, w, c)), bytes(static_cast<std::size_t>(layout.size_bytes)) {
    for (std::byte& value : bytes) value = static_cast<std::byte>(random());
    for (std::int64_t row = 0; row < rows; ++row) {
      labels()[row] = static_cast<std::int32_t>(random() % 1000);
      weights()[row] = row % 4 == 3 ? 0.0f : 1.0f;
      samples()[row] = SampleParams{};
      samples()[row].crop_h = static_cast<std::int32_t>(h);
      samples()[row].crop_w = static_cast<std::int32_t>(w);
    }
  }
  std::int32_t* labels() { return reinterpret_cast<std::int32_t*>(bytes.data() + layout.labels_offset); }
  float* weights() { return reinterpret_cast<float*>(bytes.data() + layout.weights_offset); }
  SampleParams* samples() { return reinterpret_cast<SampleParams*>(bytes.data() + layout.params_offset); }
  const std::uint8_t* image(std::int64_t n) const {
    const auto* images = reinterpret_cast<const std::uint8_t*>(bytes.data() + layout.images_offset);
    return images + n * layout.h * layout.w * layout.c;
  }
};

struct Tap {
  std::int64_t low, high;
  double weight;
};

Tap tap_at(std::int64_t out, std::int64_t extent, std::int64_t crop) {
  const double centre =
      (static_cast<double>(out) + 0.5) * static_cast<double>(crop) / static_cast<double>(extent) - 0.5;
  const double position = std::clamp(centre, 0.0, static_cast<double>(crop - 1));
  const auto low = static_cast<std::int64_t>(position);
  return {low, std::min(low + 1, crop - 1), position - static_cast<double>(low)};
}

double pixel(Slot& slot, std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) {
  const SlotLayout& layout = slot.layout;
  const std::int64_t row = slot.samples()[n].crop_y + y, column = slot.samples()[n].crop_x + x;
  if (row < 0 || row >= layout.h || column < 0 || column >= layout.w) return 0.0;
  return slot.image(n)[(row * layout.w + column) * layout.c + c];
}

/// A pixel of one sample after crop and resize.
double resized_value(Slot& slot, const NormalizeInput& input, std::int64_t n, std::int64_t h, std::int64_t w,
                     std::int64_t c) {
  const SampleParams& sample = slot.samples()[n];
  const Tap y = tap_at(h, input.h, sample.crop_h);
  const Tap x = tap_at(sample.flip != 0 ? input.w - 1 - w : w, input.w, sample.crop_w);
  const double top = (1 - x.weight) * pixel(slot, n, y.low, x.low, c) + x.weight * pixel(slot, n, y.low, x.high, c);
  const double bottom =
      (1 - x.weight) * pixel(slot, n, y.high, x.low, c) + x.weight * pixel(slot, n, y.high, x.high, c);
  return (1 - y.weight) * top + y.weight * bottom;
}

/// One sample before it is mixed.
double own_value(Slot& slot, const NormalizeInput& input, std::int64_t n, std::int64_t h, std::int64_t w,
                 std::int64_t c) {
  const SampleParams& sample = slot.samples()[n];
  const auto& [top_edge, left_edge, erased_h, erased_w] = sample.erase_box;
  if (h >= top_edge && h < top_edge + erased_h && w >= left_edge && w < left_edge + erased_w) return 0.0;
  const auto channel = static_cast<std::size_t>(c);
  double value = 0.0;
  if (sample.colour != 0) {
    value = double{sample.colour_map[4 * channel + 3]};
    for (std::size_t k = 0; k < 3; ++k) {
      value += double{sample.colour_map[4 * channel + k]} *
               resized_value(slot, input, n, h, w, static_cast<std::int64_t>(k));
    }
    value = std::clamp(value, 0.0, 255.0);
  } else {
    value = resized_value(slot, input, n, h, w, c);
  }
  return (value - double{input.params.mean[channel]}) / double{input.params.std[channel]};
}

double wanted(Slot& slot, const NormalizeInput& input, std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
  const SampleParams& sample = slot.samples()[n];
  const double own = own_value(slot, input, n, h, w, c);
  if (sample.mix_partner < 0) return own;
  const double partner = own_value(slot, input, sample.mix_partner, h, w, c);
  const auto& [top, left, box_h, box_w] = sample.mix_box;
  const bool inside = h >= top && h < top + box_h && w >= left && w < left + box_w;
  if (box_h > 0) return inside ? partner : own;
  return double{sample.mix_lambda} * own + (1.0 - double{sample.mix_lambda}) * partner;
}

class InputKernel : public testing::KernelTest {
 protected:
  void check(Slot& slot, std::int64_t rows, std::int64_t h, std::int64_t w, std::int64_t stored_c, DType dtype,
             double slack) {
    DeviceArray<std::byte> device(slot.bytes);
    DeviceArray<std::byte> x(static_cast<std::size_t>(rows * h * w * stored_c * dtype_bytes(dtype)));
    NormalizeInput input;
    input.slot = device.data();
    input.layout = slot.layout;
    input.params = {{120.5f, 117.25f, 103.0f, 99.0f}, {58.5f, 57.0f, 61.25f, 31.0f}};
    input.x = x.data();
    input.rows = rows;
    input.h = h;
    input.w = w;
    input.c = slot.layout.c;
    input.stored_c = stored_c;
    input.dtype = dtype;
    launch(input, nullptr);
    synchronize();
    const std::vector<std::byte> bytes = x.get();
    const std::vector<float> values = testing::decode(bytes, dtype);
    std::size_t i = 0;
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t place = 0; place < h * w; ++place) {
        for (std::int64_t c = 0; c < stored_c; ++c, ++i) {
          const double value = c < input.c ? wanted(slot, input, n, place / w, place % w, c) : 0.0;
          const double tolerance = c < input.c ? slack + 2 * testing::unit_of(dtype) * std::abs(value) : 0.0;
          ASSERT_NEAR(values[i], value, tolerance) << "row " << n << " pixel " << place << " channel " << c;
        }
      }
    }
    ASSERT_TRUE(x.fences_hold());
    x.poison();
    launch(input, nullptr);
    synchronize();
    ASSERT_TRUE(same_bits(x.get(), bytes));
  }
  std::mt19937 random_{11};
};

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

/// Crops of the network's size, also half outside of the image, some flipped.
TEST_F(InputKernel, CropsAndFlips) {
  for (const std::int64_t c : {1, 3, 4}) {
    Slot slot(random_, 5, 13, 17, c);
    for (std::int64_t n = 0; n < 5; ++n) {
      SampleParams& sample = slot.samples()[n];
      sample.crop_y = static_cast<std::int32_t>(n) * 4 - 6;
      sample.crop_x = 7 - static_cast<std::int32_t>(n) * 5;
      sample.crop_h = 11;
      sample.crop_w = 19;
      sample.flip = static_cast<std::int32_t>(n) % 2;
    }
    for (const DType dtype : kTypes) {
      for (const std::int64_t stored_c : {c, std::int64_t{4}, std::int64_t{5}, std::int64_t{8}, std::int64_t{16}}) {
        if (stored_c < c) continue;
        SCOPED_TRACE(std::string(dtype_name(dtype)) + " c " + std::to_string(c) + " in " + std::to_string(stored_c));
        ASSERT_NO_FATAL_FAILURE(check(slot, 4, 11, 19, stored_c, dtype, 1e-6));
      }
    }
  }
}

TEST_F(InputKernel, ResizesBilinearly) {
  struct Size {
    std::int64_t h, w;
  };
  for (const Size& size : {Size{1, 1}, Size{7, 31}, Size{32, 32}, Size{40, 9}, Size{96, 64}}) {
    Slot slot(random_, 6, 32, 24, 3);
    for (std::int64_t n = 0; n < 6; ++n) {
      SampleParams& sample = slot.samples()[n];
      sample.crop_y = static_cast<std::int32_t>(random_() % 20) - 8;
      sample.crop_x = static_cast<std::int32_t>(random_() % 20) - 8;
      sample.crop_h = n == 0 ? 1 : 1 + static_cast<std::int32_t>(random_() % 40);
      sample.crop_w = n == 1 ? static_cast<std::int32_t>(size.w) : 1 + static_cast<std::int32_t>(random_() % 40);
      sample.flip = static_cast<std::int32_t>(n) % 2;
    }
    for (const DType dtype : kTypes) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " to " + std::to_string(size.h) + "x" + std::to_string(size.w));
      ASSERT_NO_FATAL_FAILURE(check(slot, 6, size.h, size.w, 3, dtype, 1e-5));
      ASSERT_NO_FATAL_FAILURE(check(slot, 6, size.h, size.w, 8, dtype, 1e-5));
    }
  }
}

/// Mixup, cutmix and erasing, each row in another way, of whole, cropped and resized images.
TEST_F(InputKernel, MixesAndErases) {
  for (const std::int64_t size : {std::int64_t{17}, std::int64_t{32}}) {
    Slot slot(random_, 9, 32, 32, 3);
    for (std::int64_t n = 0; n < 9; ++n) {
      SampleParams& sample = slot.samples()[n];
      sample.crop_y = static_cast<std::int32_t>(n) - 4;
      sample.flip = static_cast<std::int32_t>(n) % 2;
      sample.mix_partner = n % 3 == 0 ? -1 : static_cast<std::int32_t>((n + 4) % 8);
      sample.mix_lambda = 0.1f * static_cast<float>(n);
      const auto edge = static_cast<std::int32_t>(n);
      if (n % 2 == 0) sample.mix_box = {edge, 3, 5, static_cast<std::int32_t>(size) - 3};
      if (n % 4 < 2) sample.erase_box = {2, edge, static_cast<std::int32_t>(size) - 2, 4};
    }
    for (const DType dtype : kTypes) {
      for (const std::int64_t stored_c : {3, 4, 8}) {
        SCOPED_TRACE(std::string(dtype_name(dtype)) + " at " + std::to_string(size) + " in " +
                     std::to_string(stored_c));
        ASSERT_NO_FATAL_FAILURE(check(slot, 8, size, size, stored_c, dtype, 1e-5));
      }
    }
  }
}

TEST_F(InputKernel, MapsColoursAndClampsThem) {
  std::uniform_real_distribution<float> factor(-0.5f, 1.0f), offset(-60.0f, 60.0f);
  for (const std::int64_t size : {std::int64_t{17}, std::int64_t{32}}) {
    Slot slot(random_, 7, 32, 32, 3);
    for (std::int64_t n = 0; n < 6; ++n) {
      SampleParams& sample = slot.samples()[n];
      sample.colour = 1;
      for (std::size_t i = 0; i < 12; ++i) sample.colour_map[i] = i % 4 == 3 ? offset(random_) : factor(random_);
      sample.flip = static_cast<std::int32_t>(n) % 2;
      sample.mix_partner = n % 3 == 0 ? -1 : static_cast<std::int32_t>((n + 4) % 7);
      sample.mix_lambda = 0.1f * static_cast<float>(n);
    }
    for (const DType dtype : kTypes) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " at " + std::to_string(size));
      ASSERT_NO_FATAL_FAILURE(check(slot, 7, size, size, 3, dtype, 1e-5));
      ASSERT_NO_FATAL_FAILURE(check(slot, 7, size, size, 8, dtype, 1e-5));
    }
  }
}

/// The box, not the rest of the image.
TEST_F(InputKernel, APartnerOutsideOfTheShardGivesPixelsThatAreNotNumbers) {
  Slot slot(random_, 3, 4, 4, 1);
  slot.samples()[0].mix_partner = 2;
  slot.samples()[0].mix_box = {0, 0, 2, 4};
  DeviceArray<std::byte> device(slot.bytes);
  DeviceArray<float> x(2 * 4 * 4);
  NormalizeInput input{device.data(), slot.layout, {}, x.data(), 2, 4, 4, 1, 1, DType::f32};
  launch(input, nullptr);
  synchronize();
  const std::vector<float> values = x.get();
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(std::isnan(values[i]), i < 8) << i;
}

TEST_F(InputKernel, ManySmallImages) {
  Slot slot(random_, 257, 28, 28, 1);
  ASSERT_NO_FATAL_FAILURE(check(slot, 257, 28, 28, 1, DType::f32, 1e-6));
  ASSERT_NO_FATAL_FAILURE(check(slot, 257, 28, 28, 8, DType::bf16, 1e-6));
}

TEST_F(InputKernel, AnEmptyCropIsNotANumber) {
  Slot slot(random_, 2, 4, 4, 3);
  slot.samples()[1].crop_w = 0;
  DeviceArray<std::byte> device(slot.bytes);
  DeviceArray<float> x(2 * 4 * 4 * 3);
  NormalizeInput input{device.data(), slot.layout, {}, x.data(), 2, 4, 4, 3, 3, DType::f32};
  launch(input, nullptr);
  synchronize();
  const std::vector<float> values = x.get();
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(std::isnan(values[i]), i >= 48) << i;
}

TEST_F(InputKernel, UnpackCopiesLabelsPartnersWeightsAndControl) {
  for (const std::int64_t rows : {1, 3, 257, 1000}) {
    Slot slot(random_, rows + 2, 2, 2, 1);
    for (std::int64_t n = 0; n < rows; ++n) {
      slot.samples()[n].mix_partner = n % 2 == 0 ? -1 : static_cast<std::int32_t>(random_() % rows);
      slot.samples()[n].mix_lambda = 0.5f + 0.001f * static_cast<float>(n);
    }
    DeviceArray<std::byte> device(slot.bytes), control(sizeof(ControlBlock));
    const auto count = static_cast<std::size_t>(rows);
    DeviceArray<std::int32_t> labels(count), mix_labels(count);
    DeviceArray<float> lambda(count), weights(count);
    launch(UnpackSlot{device.data(), slot.layout, rows, labels.data(), mix_labels.data(), lambda.data(), weights.data(),
                      control.data()},
           nullptr);
    synchronize();
    const std::vector<std::int32_t> got_labels = labels.get(), got_mix_labels = mix_labels.get();
    const std::vector<float> got_lambda = lambda.get(), got_weights = weights.get();
    for (std::int64_t n = 0; n < rows; ++n) {
      const auto i = static_cast<std::size_t>(n);
      const std::int32_t partner = slot.samples()[n].mix_partner;
      ASSERT_EQ(got_labels[i], slot.labels()[n]);
      ASSERT_EQ(got_mix_labels[i], slot.labels()[partner < 0 ? n : partner]);
      ASSERT_EQ(got_lambda[i], slot.samples()[n].mix_lambda);
      ASSERT_EQ(got_weights[i], slot.weights()[n]);
    }
    const auto* wanted_control = slot.bytes.data() + slot.layout.control_offset;
    EXPECT_EQ(control.get(), std::vector<std::byte>(wanted_control, wanted_control + sizeof(ControlBlock)));
    EXPECT_TRUE(labels.fences_hold() && mix_labels.fences_hold() && lambda.fences_hold() && weights.fences_hold() &&
                control.fences_hold());
  }
}

TEST_F(InputKernel, APartnerOutsideOfTheShardIsNotANumber) {
  Slot slot(random_, 4, 2, 2, 1);
  slot.samples()[2].mix_partner = 3;
  DeviceArray<std::byte> device(slot.bytes), control(sizeof(ControlBlock));
  DeviceArray<std::int32_t> labels(3), mix_labels(3);
  DeviceArray<float> lambda(3), weights(3);
  launch(UnpackSlot{device.data(), slot.layout, 3, labels.data(), mix_labels.data(), lambda.data(), weights.data(),
                    control.data()},
         nullptr);
  synchronize();
  EXPECT_EQ(lambda.get()[1], 1.0f);
  EXPECT_TRUE(std::isnan(lambda.get()[2]));
}

}  // namespace
}  // namespace renai::cuda
