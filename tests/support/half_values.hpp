#pragma once
// Values of any float type in host memory.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "renai/base/error.hpp"
#include "renai/tensor/dtype.hpp"

namespace renai::test {

inline bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16; }

/// Rounds to nearest even.
inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

inline void store_value(std::byte* at, DType dtype, float value) {
  switch (dtype) {
    case DType::f32: std::memcpy(at, &value, sizeof value); return;
    case DType::f16: {
      const auto half = static_cast<_Float16>(value);
      std::memcpy(at, &half, sizeof half);
      return;
    }
    case DType::bf16: {
      const std::uint16_t half = to_bf16(value);
      std::memcpy(at, &half, sizeof half);
      return;
    }
    default: throw InternalError("storing a value", "the type is not a float type");
  }
}

inline float load_value(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::f32: {
      float value = 0;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    case DType::f16: {
      _Float16 half{};
      std::memcpy(&half, at, sizeof half);
      return static_cast<float>(half);
    }
    case DType::bf16: {
      std::uint16_t half = 0;
      std::memcpy(&half, at, sizeof half);
      return std::bit_cast<float>(std::uint32_t{half} << 16);
    }
    default: throw InternalError("loading a value", "the type is not a float type");
  }
}

/// The value as the type stores it.
inline float rounded(float value, DType dtype) {
  std::byte at[4];
  store_value(at, dtype, value);
  return load_value(at, dtype);
}

}  // namespace renai::test
