#pragma once
// Element types.

#include <cstdint>
#include <string_view>

namespace renai {

enum class DType : std::uint8_t { f32, f16, bf16, f64, i32, i64, u8, u64 };

/// Size of one element. Units: bytes.
std::int64_t dtype_bytes(DType dtype);
/// "float32", "bfloat16", ...
std::string_view dtype_name(DType dtype);

}  // namespace renai
