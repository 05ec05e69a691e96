#pragma once
// Expected refusals as values.

#include <string>
#include <utility>

namespace renai {

/// Either "supported" or a reason why not.
class Support {
 public:
  static Support ok() { return Support({}); }
  static Support refuse(std::string reason) { return Support(std::move(reason)); }
  explicit operator bool() const noexcept { return reason_.empty(); }
  const std::string& reason() const noexcept { return reason_; }

 private:
  explicit Support(std::string reason) : reason_(std::move(reason)) {}
  std::string reason_;
};

}  // namespace renai
