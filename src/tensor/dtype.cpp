#include "renai/tensor/dtype.hpp"

#include "renai/base/check.hpp"

namespace renai {

std::int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::u8: return 1;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::f32:
    case DType::i32: return 4;
    case DType::f64:
    case DType::i64:
    case DType::u64: return 8;
  }
  throw InternalError("dtype_bytes", "unknown element type");
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float32";
    case DType::f16: return "float16";
    case DType::bf16: return "bfloat16";
    case DType::f64: return "float64";
    case DType::i32: return "int32";
    case DType::i64: return "int64";
    case DType::u8: return "uint8";
    case DType::u64: return "uint64";
  }
  throw InternalError("dtype_name", "unknown element type");
}

}  // namespace renai
