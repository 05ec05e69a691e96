#include "renai/tensor/shape.hpp"

#include "renai/base/check.hpp"
#include "renai/tensor/dtensor.hpp"

namespace renai {

Shape::Shape(std::initializer_list<std::int64_t> extents) {
  RENAI_CHECK(extents.size() <= kMaxRank, "a shape has at most four extents");
  for (const std::int64_t extent : extents) {
    RENAI_CHECK(extent >= 0, "an extent is never negative");
    extents_[static_cast<std::size_t>(rank_++)] = extent;
  }
}

std::int64_t Shape::operator[](int axis) const {
  RENAI_CHECK(axis >= 0 && axis < rank_, "axis out of range");
  return extents_[static_cast<std::size_t>(axis)];
}

std::int64_t Shape::elems() const noexcept {
  std::int64_t product = 1;
  for (int axis = 0; axis < rank_; ++axis) {
    if (__builtin_mul_overflow(product, extents_[static_cast<std::size_t>(axis)], &product)) return INT64_MAX;
  }
  return product;
}

std::string Shape::str() const {
  if (rank_ == 0) return "scalar";
  std::string text = std::to_string(extents_[0]);
  for (int axis = 1; axis < rank_; ++axis) text += "x" + std::to_string(extents_[static_cast<std::size_t>(axis)]);
  return text;
}

std::int64_t Shape::n() const { return (*this)[0]; }
std::int64_t Shape::h() const { return rank_ == 4 ? extents_[1] : 1; }
std::int64_t Shape::w() const { return rank_ == 4 ? extents_[2] : 1; }
std::int64_t Shape::c() const { return (*this)[rank_ - 1]; }

std::string DTensor::str() const {
  return std::string(dtype_name(dtype)) + "[" + shape.str() + "] at " + std::to_string(offset_bytes) + "+" +
         std::to_string(size_bytes);
}

}  // namespace renai
