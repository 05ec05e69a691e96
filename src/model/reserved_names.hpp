#pragma once
// Names with a meaning of their own in the `inputs` of a layer.

#include <string_view>

namespace renai {

inline constexpr std::string_view kNetworkInput = "input";      ///< The network's input.
inline constexpr std::string_view kPrevious = "previous";       ///< The layer before, the default.
inline constexpr std::string_view kBlockInput = "block_input";  ///< What the enclosing block reads.

}  // namespace renai
