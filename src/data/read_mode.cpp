#include "renai/data/read_mode.hpp"

#include "renai/base/check.hpp"
#include "renai/base/option_word.hpp"

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
  return named_value("--read-mode", name, {ReadMode::automatic, ReadMode::cached, ReadMode::direct}, read_mode_name);
}

ReadMode choose_read_mode(ReadMode asked, std::int64_t stored_bytes, std::int64_t available_bytes) {
  if (asked != ReadMode::automatic) return asked;
  return available_bytes > 0 && stored_bytes / 2 > available_bytes ? ReadMode::direct : ReadMode::cached;
}

}  // namespace renai
