#pragma once
// LineFile: a text file that grows by whole lines and outlives a disk that is full for a while.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "renai/base/descriptor.hpp"

namespace renai {

/// Each line is handed to the system at once. Where it takes none (a full disk, a quota), lines wait in memory, in
/// order, and are tried again with the next one. Movable.
class LineFile {
 public:
  /// Lines that wait take at most this much memory. Units: bytes.
  static constexpr std::size_t kMostWaiting = std::size_t{16} << 20;

  LineFile() = default;
  /// The file is made where it is missing; one that is there then holds `lines` and nothing else, and is at no moment
  /// less than before. Errors: ResourceError naming the file and the system's reason.
  LineFile(std::filesystem::path path, const std::vector<std::string>& lines);
  LineFile(LineFile&&) noexcept = default;
  LineFile& operator=(LineFile&&) noexcept = default;
  /// Tries once more; what still cannot be written is lost.
  ~LineFile();

  /// `line` has no line break. Errors: ResourceError when lines cannot be written and more than kMostWaiting wait.
  void put(std::string_view line);
  /// Errors: ResourceError when lines wait that still cannot be written.
  void flush();
  bool waiting() const { return !waiting_.empty(); }

  /// The lines of a file, without line breaks; a last one that was not ended, as a killed program leaves it, is not
  /// one. None where there is no regular file. Errors: DataError when it cannot be read.
  static std::vector<std::string> read(const std::filesystem::path& path);

 private:
  std::filesystem::path path_;
  Descriptor file_;
  std::string waiting_;
  /// 0, or the error that left lines waiting.
  int write_waiting() noexcept;
};

}  // namespace renai
