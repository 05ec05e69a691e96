#pragma once
// What random models are made of: options, and the values that layers pass on.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace renai::testing {

/// What random models may look like. They are valid at every one of `resolutions`, with equal parameters at all of
/// them.
struct RandomModelOptions {
  int min_layers = 2, max_layers = 20;  ///< Before the layers that join open branches and classify.
  std::vector<std::int64_t> resolutions{16};
  std::int64_t channels = 3;
  bool batch_norm = true, dropout = true;
  bool blocks = false;  ///< Many of what kernels are fused for: convolution, norm, sum and relu in a row, mostly relus.
};

/// The output of a layer, or the network's input.
struct RandomValue {
  std::string name;
  std::int64_t channels = 0;
  bool map = true;                                 ///< [N, H, W, C], else [N, C].
  std::vector<std::array<std::int64_t, 2>> sizes;  ///< {h, w} by resolution.
  bool read = false;
};

/// Extent after a window, or nothing when the kernel does not fit.
inline std::optional<std::int64_t> window_extent(std::int64_t in, std::int64_t kernel, std::int64_t stride,
                                                 std::int64_t pad, std::int64_t dilation) {
  const std::int64_t reach = (kernel - 1) * dilation + 1;
  if (in + 2 * pad < reach) return std::nullopt;
  return (in + 2 * pad - reach) / stride + 1;
}

}  // namespace renai::testing
