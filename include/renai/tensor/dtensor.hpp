#pragma once
// DTensor: where a tensor lies in a device's arena. A descriptor; owns no memory.

#include <cstdint>
#include <string>

#include "renai/tensor/dtype.hpp"
#include "renai/tensor/shape.hpp"

namespace renai {

/// Index of a region in a MemoryPlan; -1 for none.
using RegionIndex = std::int32_t;

/// Alignment of every slot. Units: bytes.
inline constexpr std::int64_t kSlotAlignment = 256;

/// Rounds up to the slot alignment. Units: bytes.
constexpr std::int64_t align_slot(std::int64_t size_bytes) {
  return (size_bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

/// One tensor of one shape variant: logical shape, element type, and its place in the arena.
/// `offset_bytes` is relative to the arena's start; -1 when the tensor has no storage in this variant.
/// `padded_c` is the stored extent of the last axis (>= logical); elements past the logical extent are padding.
struct DTensor {
  Shape shape;
  DType dtype = DType::f32;
  RegionIndex region = -1;
  std::int64_t offset_bytes = -1;
  std::int64_t size_bytes = 0;
  std::int64_t padded_c = 0;

  bool placed() const noexcept { return offset_bytes >= 0; }
  bool operator==(const DTensor&) const = default;
  std::string str() const;
};

}  // namespace renai
