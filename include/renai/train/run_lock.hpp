#pragma once
// RunLock: one run at a time in a run directory.

#include <filesystem>
#include <string>

#include "renai/base/descriptor.hpp"

namespace renai {

/// The hold of a run on its directory. It needs no file: it lies on the directory itself, moves with it when that is
/// renamed, and goes with the process however that ends.
class RunLock {
 public:
  /// Holds nothing.
  RunLock() = default;
  /// Takes hold of `directory`; holds nothing where there is none, and nothing with a warning() where the file system
  /// knows no locks. Errors: UserError naming the directory and the run that holds it.
  explicit RunLock(const std::filesystem::path& directory);

  bool held() const { return static_cast<bool>(descriptor_); }
  /// Why nothing is held although the directory exists; empty otherwise.
  const std::string& warning() const { return warning_; }

 private:
  Descriptor descriptor_;
  std::string warning_;
};

}  // namespace renai
