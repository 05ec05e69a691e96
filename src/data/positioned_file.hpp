#pragma once
// PositionedFile: a file read at given places by any number of threads, without a lock.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "renai/base/descriptor.hpp"

namespace renai {

class PositionedFile {
 public:
  PositionedFile() = default;
  /// Errors: DataError where there is none; ResourceError naming the file and the system's reason.
  explicit PositionedFile(std::filesystem::path path);

  std::int64_t size_bytes() const { return size_bytes_; }
  /// Fills `out` from byte `at` on. What a network or disk refuses for a moment is asked for again for about three
  /// seconds; a file that its server no longer knows is opened again. Returns false when the file ends before.
  /// Errors: ResourceError naming file, offset and the system's reason.
  bool read(std::int64_t at, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  Descriptor file_;
  std::int64_t size_bytes_ = 0;
};

/// Lets the process have this many more files open, if the system's limits allow it. Errors: ResourceError.
void allow_open_files(std::int64_t count);

}  // namespace renai
