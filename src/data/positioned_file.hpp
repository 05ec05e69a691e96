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
  /// `direct`: read past the page cache, in whole blocks of the device, through a buffer that each thread keeps.
  /// Errors: DataError where there is none; ResourceError naming the file and the system's reason; DirectReadRefused
  /// where its file system has no such reads.
  explicit PositionedFile(std::filesystem::path path, bool direct = false);

  std::int64_t size_bytes() const { return size_bytes_; }
  /// Fills `out` from byte `at` on. What a network or disk refuses for a moment is asked for again for about three
  /// seconds; a file that its server no longer knows is opened again. Returns false when the file ends before.
  /// Errors: ResourceError naming file, offset and the system's reason.
  bool read(std::int64_t at, std::span<std::byte> out) const;
  /// The same without patience: false for whatever is in the way.
  bool try_read(std::int64_t at, std::span<std::byte> out) const noexcept;

 private:
  Descriptor open_file() const;
  std::int64_t read_some(int file, std::int64_t at, std::span<std::byte> out) const noexcept;
  std::int64_t read_blocks(int file, std::int64_t at, std::span<std::byte> out) const noexcept;

  std::filesystem::path path_;
  std::int64_t block_bytes_ = 0;  ///< Of direct reads: places and sizes are multiples of it; 0: through the page cache.
  Descriptor file_;
  std::int64_t size_bytes_ = 0;
};

/// Lets the process have this many more files open, and some others beside them: as many as the system's
/// limits allow. Errors: ResourceError where they are too few.
void allow_open_files(std::int64_t count);

}  // namespace renai
