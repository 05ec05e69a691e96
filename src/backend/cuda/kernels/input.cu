#include <array>

#include "../../sample_mix.hpp"
#include "input.hpp"
#include "values.cuh"

namespace renai::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostChannels = 4;
/// Largest extent of a crop box: positions stay below 2^32. A box outside of [1, kMostCrop] gives pixels that are not a
/// number.
constexpr std::int32_t kMostCrop = 65535;

/// One block. A partner outside of the shard gives a weight that is not a number.
__global__ void __launch_bounds__(kThreads) unpack_slot(UnpackSlot unpack) {
  const auto* labels = reinterpret_cast<const std::int32_t*>(unpack.slot + unpack.layout.labels_offset);
  const auto* weights = reinterpret_cast<const float*>(unpack.slot + unpack.layout.weights_offset);
  const auto* samples = reinterpret_cast<const SampleParams*>(unpack.slot + unpack.layout.params_offset);
  for (std::int64_t row = threadIdx.x; row < unpack.rows; row += kThreads) {
    const std::int64_t partner = samples[row].mix_partner;
    const bool own = partner < 0 || partner >= unpack.rows;
    unpack.labels[row] = labels[row];
    unpack.mix_labels[row] = labels[own ? row : partner];
    unpack.mix_lambda[row] = partner < unpack.rows ? samples[row].mix_lambda : NAN;
    unpack.sample_weights[row] = weights[row];
  }
  constexpr int kWords = sizeof(ControlBlock) / sizeof(uint4);
  if (threadIdx.x < kWords) {
    const auto* from = reinterpret_cast<const uint4*>(unpack.slot + unpack.layout.control_offset);
    reinterpret_cast<uint4*>(unpack.control)[threadIdx.x] = from[threadIdx.x];
  }
}

/// What normalize_input knows at launch, in the kernel's number types.
struct Normalize {
  const std::uint8_t* images;
  const SampleParams* samples;
  void* x;
  std::int32_t image_h, image_w;  ///< Stored image.
  std::int32_t h, w, c, stored_c;
  std::int64_t rows;
  unsigned blocks_of_image;
  std::array<float, kMostChannels> mean, inverse_std;
};

/// One axis of the bilinear resize: two crop positions and the weight of the second.
struct Tap {
  std::int32_t low, high;
  float weight;
};

/// Half-pixel centres, the crop's edge repeated: position (out + 1/2) * crop / extent - 1/2, as an exact fraction.
__device__ Tap tap_at(std::int32_t out, std::int32_t extent, std::int32_t crop) {
  if (extent == crop) return {out, out, 0.0f};
  const auto scaled = (2u * static_cast<std::uint32_t>(out) + 1u) * static_cast<std::uint32_t>(crop);
  if (scaled < static_cast<std::uint32_t>(extent)) return {0, min(1, crop - 1), 0.0f};
  const std::uint32_t position = scaled - static_cast<std::uint32_t>(extent);
  const std::uint32_t unit = 2u * static_cast<std::uint32_t>(extent);
  const auto low = static_cast<std::int32_t>(position / unit);
  if (low >= crop - 1) return {crop - 1, crop - 1, 0.0f};
  return {low, low + 1, static_cast<float>(position % unit) / static_cast<float>(unit)};
}

/// Pixels of one stored image in crop coordinates; 0 outside of the image.
struct Image {
  const std::uint8_t* data;
  std::int32_t h, w, c, crop_y, crop_x;

  __device__ const std::uint8_t* at(std::int32_t y, std::int32_t x) const {
    const std::int32_t row = crop_y + y, column = crop_x + x;
    if (row < 0 || row >= h || column < 0 || column >= w) return nullptr;
    return data + (static_cast<std::int64_t>(row) * w + column) * c;
  }
};

__device__ float value_of(const std::uint8_t* pixel, int channel) {
  return pixel != nullptr ? static_cast<float>(pixel[channel]) : 0.0f;
}

/// Writes the pixel's channels, then zeros up to stored_c, kWord elements at a time.
template <typename T, int kWord>
__device__ void store_pixel(T* out, const float (&values)[kMostChannels], std::int32_t c, std::int32_t stored_c) {
  if constexpr (kWord == 1) {
#pragma unroll
    for (int k = 0; k < kMostChannels; ++k) {
      if (k < stored_c) out[k] = from_float<T>(k < c ? values[k] : 0.0f);
    }
    for (std::int32_t k = kMostChannels; k < stored_c; ++k) out[k] = from_float<T>(0.0f);
  } else {
    struct alignas(sizeof(T) * kWord) Word {
      T elems[kWord];
    };
    Word word;
#pragma unroll
    for (int k = 0; k < kWord; ++k) {
      word.elems[k] = from_float<T>(k < kMostChannels && k < c ? values[k < kMostChannels ? k : 0] : 0.0f);
    }
    auto* words = reinterpret_cast<Word*>(out);
    words[0] = word;
#pragma unroll
    for (int k = 0; k < kWord; ++k) word.elems[k] = from_float<T>(0.0f);
    for (std::int32_t i = 1; i < stored_c / kWord; ++i) words[i] = word;
  }
}

/// The channels of image n at a pixel of the network's input; 0 where it was erased.
__device__ void sample_values(const Normalize& input, std::int64_t n, std::int32_t y, std::int32_t column,
                              float (&values)[kMostChannels]) {
  const SampleParams& sample = input.samples[n];
#pragma unroll
  for (int k = 0; k < kMostChannels; ++k) values[k] = 0.0f;
  if (box_holds(sample.erase_box, y, column)) return;
  const std::int32_t x = sample.flip != 0 ? input.w - 1 - column : column;
  const std::int64_t image_bytes = static_cast<std::int64_t>(input.image_h) * input.image_w * input.c;
  const Image image{
      input.images + n * image_bytes, input.image_h, input.image_w, input.c, sample.crop_y, sample.crop_x};
  const std::int32_t crop_h = sample.crop_h, crop_w = sample.crop_w;
  if (crop_h == input.h && crop_w == input.w) {
    const std::uint8_t* from = image.at(y, x);
#pragma unroll
    for (int k = 0; k < kMostChannels; ++k) {
      if (k < input.c) values[k] = value_of(from, k);
    }
  } else if (crop_h < 1 || crop_w < 1 || crop_h > kMostCrop || crop_w > kMostCrop) {
#pragma unroll
    for (int k = 0; k < kMostChannels; ++k) values[k] = NAN;
  } else {
    const Tap ty = tap_at(y, input.h, crop_h), tx = tap_at(x, input.w, crop_w);
    const std::uint8_t *top_left = image.at(ty.low, tx.low), *top_right = image.at(ty.low, tx.high);
    const std::uint8_t *bottom_left = image.at(ty.high, tx.low), *bottom_right = image.at(ty.high, tx.high);
#pragma unroll
    for (int k = 0; k < kMostChannels; ++k) {
      if (k >= input.c) continue;
      const float top = (1.0f - tx.weight) * value_of(top_left, k) + tx.weight * value_of(top_right, k);
      const float bottom = (1.0f - tx.weight) * value_of(bottom_left, k) + tx.weight * value_of(bottom_right, k);
      values[k] = (1.0f - ty.weight) * top + ty.weight * bottom;
    }
  }
  map_colour(sample, values);
#pragma unroll
  for (int k = 0; k < kMostChannels; ++k) values[k] = (values[k] - input.mean[k]) * input.inverse_std[k];
}

/// Adds the partner's part. A partner outside of the shard gives pixels that are not a number.
__device__ void mix_values(const Normalize& input, std::int64_t partner, std::int32_t y, std::int32_t column,
                           float share, float (&values)[kMostChannels]) {
  float other[kMostChannels] = {NAN, NAN, NAN, NAN};
  if (partner < input.rows) sample_values(input, partner, y, column, other);
#pragma unroll
  for (int k = 0; k < kMostChannels; ++k) {
    values[k] = share > 0.0f ? share * values[k] + (1.0f - share) * other[k] : other[k];
  }
}

/// One thread an output pixel; the pixels of a block lie in one image.
template <typename T, int kWord>
__global__ void __launch_bounds__(kThreads) normalize(Normalize input) {
  const std::int64_t n = blockIdx.x / input.blocks_of_image;
  const auto pixel = static_cast<std::int32_t>(blockIdx.x % input.blocks_of_image * kThreads + threadIdx.x);
  if (pixel >= input.h * input.w) return;
  const std::int32_t y = pixel / input.w, column = pixel % input.w;
  const float share = own_share(input.samples[n], y, column);
  float values[kMostChannels];
  sample_values(input, n, y, column, values);
  if (share < 1.0f) mix_values(input, input.samples[n].mix_partner, y, column, share, values);
  const std::int64_t at = (n * input.h * input.w + pixel) * input.stored_c;
  store_pixel<T, kWord>(static_cast<T*>(input.x) + at, values, input.c, input.stored_c);
}

/// The widest store that divides a stored pixel: 16 bytes, else four elements, else one.
template <typename T>
void launch_normalize(const Normalize& input, cudaStream_t stream) {
  constexpr int kWide = 16 / sizeof(T);
  const unsigned blocks = block_count(input.rows * input.blocks_of_image, 1);
  if (input.stored_c % kWide == 0) {
    normalize<T, kWide><<<blocks, kThreads, 0, stream>>>(input);
  } else if (input.stored_c % 4 == 0) {
    normalize<T, 4><<<blocks, kThreads, 0, stream>>>(input);
  } else {
    normalize<T, 1><<<blocks, kThreads, 0, stream>>>(input);
  }
  check_launch("normalize_input");
}

}  // namespace

void launch(const UnpackSlot& unpack, cudaStream_t stream) {
  RENAI_CHECK(unpack.rows > 0 && unpack.rows <= unpack.layout.rows, "the shard fits its slot");
  require_aligned(unpack.slot, "the slot");
  require_aligned(unpack.control, "the control block");
  unpack_slot<<<1, kThreads, 0, stream>>>(unpack);
  check_launch("unpack_slot");
}

void launch(const NormalizeInput& input, cudaStream_t stream) {
  const SlotLayout& layout = input.layout;
  constexpr std::int64_t kMostExtent = 16384, kMostPixels = std::int64_t{1} << 30;
  RENAI_CHECK(input.rows > 0 && input.rows <= layout.rows && input.c == layout.c && input.c <= kMostChannels &&
                  input.stored_c >= input.c,
              "the network's input fits its slot");
  RENAI_CHECK(input.h > 0 && input.w > 0 && input.h <= kMostExtent && input.w <= kMostExtent &&
                  layout.h * layout.w <= kMostPixels,
              "an image has at most 16384 x 16384 pixels");
  require_aligned(input.x, "the network's input");
  Normalize args{};
  args.images = reinterpret_cast<const std::uint8_t*>(input.slot + layout.images_offset);
  args.samples = reinterpret_cast<const SampleParams*>(input.slot + layout.params_offset);
  args.x = input.x;
  args.image_h = static_cast<std::int32_t>(layout.h);
  args.image_w = static_cast<std::int32_t>(layout.w);
  args.h = static_cast<std::int32_t>(input.h);
  args.w = static_cast<std::int32_t>(input.w);
  args.c = static_cast<std::int32_t>(input.c);
  args.stored_c = static_cast<std::int32_t>(input.stored_c);
  args.rows = input.rows;
  args.blocks_of_image = block_count(input.h * input.w, kThreads);
  for (std::size_t k = 0; k < kMostChannels; ++k) {
    args.mean[k] = input.params.mean[k];
    args.inverse_std[k] = static_cast<float>(1.0 / double{input.params.std[k]});
  }
  with_element_type(input.dtype, [&](auto type) { launch_normalize<decltype(type)>(args, stream); });
}

}  // namespace renai::cuda
