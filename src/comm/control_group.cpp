#include "renai/comm/control_group.hpp"

#include "renai/base/check.hpp"

namespace renai {

std::string ControlGroup::broadcast(std::string_view message, int root, std::string_view stage) {
  RENAI_CHECK(root >= 0 && root < world_size(), "root " + std::to_string(root) + " of a broadcast is no rank");
  return all_gather(rank() == root ? message : std::string_view{}, stage)[static_cast<std::size_t>(root)];
}

}  // namespace renai
