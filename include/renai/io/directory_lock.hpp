#pragma once
// A hold of a directory.

#include <filesystem>

#include "renai/base/descriptor.hpp"

namespace renai {

/// What became of an attempt to take hold of a directory.
struct DirectoryLock {
  Descriptor descriptor;  ///< Holds the directory as long as it lives; empty where nothing is held.
  /// 0 where it is held; EWOULDBLOCK: another holds it; ENOENT or ENOTDIR: there is no such directory; else an error
  /// number of a file system without locks.
  int error = 0;
};

/// Alone, or beside others who hold it shared: who changes files that no two of them write.
enum class Hold { alone, shared };

/// Takes hold of `directory` or says why not, without waiting. Effects: none on disk. The hold lies on the directory
/// itself, moves with it when it is renamed, and goes with the process however that ends.
DirectoryLock lock_directory(const std::filesystem::path& directory, Hold hold = Hold::alone);

}  // namespace renai
