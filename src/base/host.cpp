#include "renai/base/host.hpp"

#include <unistd.h>

#include <array>

namespace renai {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown-host";
}

}  // namespace renai
