// SlotLayout: aligned, in order, without overlap, and large enough.
#include "renai/tensor/slot_layout.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "renai/base/error.hpp"
#include "renai/tensor/dtensor.hpp"

namespace renai {
namespace {

TEST(SlotLayout, PartsAreAlignedAndDisjoint) {
  for (const std::int64_t rows : {1, 7, 8, 33, 256}) {
    for (const std::int64_t c : {1, 3}) {
      const SlotLayout layout = SlotLayout::make(rows, 28, 30, c);
      const std::vector<std::pair<std::int64_t, std::int64_t>> parts{
          {layout.control_offset, static_cast<std::int64_t>(sizeof(ControlBlock))},
          {layout.labels_offset, rows * 4},
          {layout.ids_offset, rows * 8},
          {layout.weights_offset, rows * 4},
          {layout.params_offset, rows * static_cast<std::int64_t>(sizeof(SampleParams))},
          {layout.images_offset, rows * 28 * 30 * c}};
      std::int64_t end = 0;
      for (const auto& [offset, size_bytes] : parts) {
        EXPECT_EQ(offset % kSlotAlignment, 0);
        EXPECT_GE(offset, end) << layout.str();
        end = offset + size_bytes;
      }
      EXPECT_GE(layout.size_bytes, end);
      EXPECT_LT(layout.size_bytes - end, kSlotAlignment);
    }
  }
}

TEST(SlotLayout, IsAFunctionOfItsExtents) {
  EXPECT_EQ(SlotLayout::make(8, 28, 28, 1), SlotLayout::make(8, 28, 28, 1));
  EXPECT_NE(SlotLayout::make(8, 28, 28, 1), SlotLayout::make(8, 28, 28, 3));
  EXPECT_EQ(SlotLayout::make(8, 28, 28, 1).str(), "slot of 8 samples 28x28x1, 8448 B");
}

TEST(SlotLayout, RefusesEmptyExtents) {
  EXPECT_THROW(SlotLayout::make(0, 28, 28, 1), InternalError);
  EXPECT_THROW(SlotLayout::make(8, 0, 28, 1), InternalError);
  EXPECT_THROW(SlotLayout::make(8, 28, -1, 1), InternalError);
  EXPECT_THROW(SlotLayout::make(8, 28, 28, 0), InternalError);
}

}  // namespace
}  // namespace renai
