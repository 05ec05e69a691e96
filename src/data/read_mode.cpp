#include "renai/data/read_mode.hpp"

#include <vector>

#include "renai/base/check.hpp"
#include "renai/base/text.hpp"

namespace renai {

std::string read_mode_name(ReadMode mode) {
  switch (mode) {
    case ReadMode::automatic: return "auto";
    case ReadMode::cached: return "cached";
    case ReadMode::direct: return "direct";
  }
  RENAI_CHECK(false, "a way to read without a name");
}

ReadMode parse_read_mode(const std::string& name) {
  std::vector<std::string> names;
  for (const ReadMode mode : {ReadMode::automatic, ReadMode::cached, ReadMode::direct}) {
    names.push_back(read_mode_name(mode));
    if (names.back() == name) return mode;
  }
  throw UserError("--read-mode " + name, "there is no such way to read", suggest_name(name, names));
}

ReadMode choose_read_mode(ReadMode asked, std::int64_t stored_bytes, std::int64_t available_bytes) {
  if (asked != ReadMode::automatic) return asked;
  return available_bytes > 0 && stored_bytes / 2 > available_bytes ? ReadMode::direct : ReadMode::cached;
}

}  // namespace renai
