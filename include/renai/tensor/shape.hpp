#pragma once
// Shapes: up to four extents, NHWC for activations, KRSC for convolution weights, [K, C] for linear weights.

#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace renai {

/// Extents of a tensor, outermost first; the last one is contiguous. Rank 0 is a scalar with one element.
class Shape {
 public:
  static constexpr int kMaxRank = 4;
  Shape() = default;
  /// Errors: InternalError for more than four extents or a negative one.
  Shape(std::initializer_list<std::int64_t> extents);

  int rank() const noexcept { return rank_; }
  std::int64_t operator[](int axis) const;
  /// Number of elements (1 for rank 0).
  std::int64_t elems() const noexcept;
  /// "8x28x28x1".
  std::string str() const;
  auto operator<=>(const Shape&) const = default;

  // NHWC accessors; a rank-2 shape [N, C] answers h() = w() = 1.
  std::int64_t n() const;
  std::int64_t h() const;
  std::int64_t w() const;
  std::int64_t c() const;

 private:
  std::array<std::int64_t, kMaxRank> extents_{0, 0, 0, 0};
  int rank_ = 0;
};

}  // namespace renai
