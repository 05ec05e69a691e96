#include "renai/base/failures.hpp"

#include <algorithm>

namespace renai {
namespace {

[[noreturn]] void raise_as(bool damaged, const std::string& failed, const std::string& why, const std::string& remedy) {
  if (damaged) throw DataError(failed, why, remedy);
  throw ResourceError(failed, why, remedy);
}

}  // namespace

void Failures::raise(const std::string& failed, const std::string& things) const {
  if (errors_.empty()) return;
  const bool damaged =
      std::any_of(errors_.begin(), errors_.end(), [](const Error& error) { return error.kind() == ErrorKind::data; });
  if (errors_.size() == 1) raise_as(damaged, errors_[0].failed(), errors_[0].why(), errors_[0].remedy());
  std::string why = std::to_string(errors_.size()) + " of " + std::to_string(looked_) + " " + things + " failed";
  std::vector<std::string> remedies;
  std::string remedy;
  for (const Error& error : errors_) {
    why += "\n  " + error.failed() + ": " + error.why();
    if (std::find(remedies.begin(), remedies.end(), error.remedy()) != remedies.end()) continue;
    remedies.push_back(error.remedy());
    remedy += (remedy.empty() ? "" : ", or ") + error.remedy();
  }
  raise_as(damaged, failed, why + "\n", remedy);
}

}  // namespace renai
