#pragma once
// What the copies of staging buffers into a device can do.

#include <cstdint>

#include "renai/data/data_bench.hpp"
#include "renai/device/device.hpp"

namespace renai {

/// The stage "copy": page-locked buffers of `slot_bytes` for `rows` images into the device one after the other on one
/// stream, two under way at a time as in training, for about `seconds`. Errors: ResourceError when memory is missing.
StageRate bench_copy(Device& device, std::int64_t slot_bytes, std::int64_t rows, double seconds);

}  // namespace renai
