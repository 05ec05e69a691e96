#include "renai/backend/backend.hpp"
#include "renai/base/check.hpp"

namespace renai {

std::string_view precision_name(Precision precision) {
  constexpr std::array<std::string_view, 4> kNames{"fp32", "tf32", "bf16", "fp16"};
  RENAI_CHECK(static_cast<std::size_t>(precision) < kNames.size(), "precision out of range");
  return kNames[static_cast<std::size_t>(precision)];
}

}  // namespace renai
