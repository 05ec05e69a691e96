#pragma once
// Tensors of the kernels' element types for tests: rounded values on the host, the same on the device, comparison with
// fp64 loops.

#include <array>
#include <cmath>

#include "kernel_case.hpp"

namespace renai::testing {

inline constexpr std::array<DType, 3> kFloatTypes{DType::f32, DType::f16, DType::bf16};

/// A tensor in device memory, poisoned or with values. `shift` elements lie before it, so that 1 makes it unaligned.
class DeviceTensor {
 public:
  DeviceTensor(std::size_t count, DType dtype, std::size_t shift = 0)
      : dtype_(dtype), shift_(shift), bytes_((count + shift) * static_cast<std::size_t>(dtype_bytes(dtype))) {}
  DeviceTensor(const std::vector<float>& values, DType dtype, std::size_t shift = 0)
      : DeviceTensor(values.size(), dtype, shift) {
    std::vector<float> all(shift, 0.0f);
    all.insert(all.end(), values.begin(), values.end());
    bytes_.set(encode(all, dtype));
  }

  void* data() { return bytes_.data() + shift_ * static_cast<std::size_t>(dtype_bytes(dtype_)); }
  std::vector<std::byte> bytes() const {
    const std::vector<std::byte> all = bytes_.get();
    return {all.begin() + static_cast<std::ptrdiff_t>(shift_) * dtype_bytes(dtype_), all.end()};
  }
  std::vector<float> get() const { return decode(bytes(), dtype_); }
  bool fences_hold() const { return bytes_.fences_hold(); }

 private:
  DType dtype_;
  std::size_t shift_;
  DeviceArray<std::byte> bytes_;
};

/// The values after rounding to the type.
inline std::vector<float> rounded(const std::vector<float>& values, DType dtype) {
  return decode(encode(values, dtype), dtype);
}

/// Compares `got` with fp64 values: within one rounding to `dtype` and `noise` (of the f32 arithmetic) of each.
/// Infinities and not-a-numbers must agree.
inline void expect_close(const std::vector<float>& got, const std::vector<double>& want,
                         const std::vector<double>& noise, DType dtype, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double allowed = unit_of(dtype) * std::abs(want[i]) * 1.01 + tiny_of(dtype) + noise[i];
    const bool close = std::isnan(want[i])   ? std::isnan(got[i])
                       : std::isinf(want[i]) ? double{got[i]} == want[i]
                                             : std::abs(double{got[i]} - want[i]) <= allowed;
    if (!close && wrong++ == 0) first = i;
  }
  if (wrong == 0) return;
  ADD_FAILURE() << what << ": " << wrong << " of " << got.size() << " differ; first at " << first << ": got "
                << got[first] << ", wanted " << want[first] << " within " << noise[first] << " and a rounding to "
                << dtype_name(dtype);
}

}  // namespace renai::testing
