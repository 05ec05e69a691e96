#include "renai/tensor/slot_layout.hpp"

#include "renai/base/check.hpp"
#include "renai/tensor/dtensor.hpp"

namespace renai {

SlotLayout SlotLayout::make(std::int64_t rows, std::int64_t h, std::int64_t w, std::int64_t c) {
  RENAI_CHECK(rows > 0 && h > 0 && w > 0 && c > 0, "a slot has at least one row and one pixel");
  SlotLayout layout;
  layout.rows = rows;
  layout.h = h;
  layout.w = w;
  layout.c = c;
  std::int64_t offset = 0;
  const auto place = [&offset](std::int64_t part_bytes) {
    const std::int64_t at = offset;
    offset += align_slot(part_bytes);
    return at;
  };
  layout.control_offset = place(sizeof(ControlBlock));
  layout.labels_offset = place(rows * 4);
  layout.ids_offset = place(rows * 8);
  layout.weights_offset = place(rows * 4);
  layout.params_offset = place(rows * static_cast<std::int64_t>(sizeof(SampleParams)));
  layout.images_offset = place(rows * h * w * c);
  layout.size_bytes = offset;
  return layout;
}

std::string SlotLayout::str() const {
  return "slot of " + std::to_string(rows) + " samples " + std::to_string(h) + "x" + std::to_string(w) + "x" +
         std::to_string(c) + ", " + std::to_string(size_bytes) + " B";
}

}  // namespace renai
