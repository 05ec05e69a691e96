#pragma once
// Checks of internal invariants. For user mistakes throw UserError or DataError with a remedy instead.

#include <string>

#include "renai/base/error.hpp"

namespace renai {

[[noreturn]] void fail_check(const char* expression, const std::string& message, std::source_location where);

}  // namespace renai

/// Throws InternalError with the expression's text and `message` unless `condition` holds.
#define RENAI_CHECK(condition, message)                                                          \
  do {                                                                                           \
    if (!(condition)) ::renai::fail_check(#condition, message, std::source_location::current()); \
  } while (false)
