#pragma once
// RAII for file descriptors.

#include <unistd.h>

#include "renai/base/handle.hpp"

namespace renai {

/// How Handle closes what a Descriptor owns.
struct CloseDescriptor {
  void operator()(int descriptor) const noexcept { ::close(descriptor); }
};
/// Owns a file descriptor; -1 marks "owns nothing".
using Descriptor = Handle<int, CloseDescriptor, -1>;

}  // namespace renai
