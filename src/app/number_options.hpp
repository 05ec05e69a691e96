#pragma once
// Numbers of the command line that lie outside of what they can be.

#include <sstream>
#include <string>

#include "renai/base/error.hpp"

namespace renai {

/// Errors: UserError "OPTION VALUE; it is out of range; USE" unless `right`.
template <typename T>
void require_number(bool right, const std::string& option, T value, const std::string& use) {
  if (right) return;
  std::ostringstream failed;
  failed << option << ' ' << value;
  throw UserError(failed.str(), "it is out of range", use);
}

}  // namespace renai
