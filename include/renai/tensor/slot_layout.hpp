#pragma once
// SlotLayout: how one shard of samples lies in a staging buffer and, unchanged, in a device input slot.

#include <array>
#include <cstdint>
#include <string>

namespace renai {

/// Augmentation of one sample, drawn by the loader from (seed, epoch, sample id), the mix_ fields from (seed, step,
/// shard), and applied after the copy, in the order crop, resize, flip, colour, normalise, erase, mix.
/// The crop box is in staged-image pixels and may reach outside the image (the outside reads as pixel value 0);
/// it is resized bilinearly to the network's input when the sizes differ.
struct SampleParams {
  std::int32_t crop_y = 0, crop_x = 0, crop_h = 0, crop_w = 0;
  std::int32_t flip = 0;          ///< 1: mirror left-right after the crop.
  std::int32_t mix_partner = -1;  ///< Row of the mixup or cutmix partner in the same shard; -1 for none.
  float mix_lambda = 1.0f;        ///< Weight of the own label and, without a box, of the own pixels.
  std::int32_t colour = 0;        ///< 1: colour_map is applied; the image has three channels.
  /// Boxes (y, x, h, w) of the network's input, after crop, resize and flip; h = 0: none.
  std::array<std::int32_t, 4> mix_box{0, 0, 0, 0};    ///< cutmix: here the partner's pixels stand.
  std::array<std::int32_t, 4> erase_box{0, 0, 0, 0};  ///< Erased before any mixing: 0 after normalisation.
  /// An affine map of colours on the scale 0 to 255, clamped to it: channel k becomes row k of this 3 x 4 matrix times
  /// (red, green, blue, 1).
  std::array<float, 12> colour_map{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0};
  std::array<std::int32_t, 4> reserved{};
};
static_assert(sizeof(SampleParams) == 128);

/// Values that change from step to step, staged with each shard so that one captured graph serves every step.
struct ControlBlock {
  std::uint64_t seed = 0;
  std::int64_t step = 0;  ///< Optimizer step, from 0.
  std::int32_t epoch = 0;
  std::int32_t shard = 0;        ///< Logical shard index, 0..V-1; in training, K micro-batches to a shard, 0..V*K-1.
  std::int32_t local_shard = 0;  ///< Index of the shard on this rank, 0..V/R-1.
  std::int32_t phase = 0;        ///< 0: training, 1: validation.
  std::int32_t rows = 0;         ///< Rows of this variant (N of its ShapeId).
  std::int32_t valid_rows = 0;   ///< Rows with weight 1; the rest are padding.
  float lr = 0.0f;
  std::int32_t micro_batch = 0;  ///< Of the shard, 0..K-1.
  float loss_factor = 1.0f;      ///< Of the loss's gradient; infinite in a drill, else 1.
  std::array<std::int32_t, 3> reserved{};
};
static_assert(sizeof(ControlBlock) == 64);

/// Byte offsets of the parts of a slot. All parts are 256-byte aligned.
/// Shapes: images u8 [rows, h, w, c]; labels i32 [rows]; sample_ids i64 [rows]; weights f32 [rows];
/// params SampleParams [rows]; control ControlBlock [1].
struct SlotLayout {
  std::int64_t rows = 0, h = 0, w = 0, c = 0;  ///< Capacity: the largest shard and the staged image size.
  std::int64_t control_offset = 0, labels_offset = 0, ids_offset = 0, weights_offset = 0, params_offset = 0,
               images_offset = 0, size_bytes = 0;

  /// Errors: InternalError for extents below 1.
  static SlotLayout make(std::int64_t rows, std::int64_t h, std::int64_t w, std::int64_t c);
  bool operator==(const SlotLayout&) const = default;
  std::string str() const;
};

}  // namespace renai
