#pragma once
// What the operating system says of this machine.

#include <string>

namespace renai {

/// "node07"; "unknown-host" when the system does not say. Never throws for want of a name.
std::string host_name();

}  // namespace renai
