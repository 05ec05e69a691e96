#pragma once
// Bytes on their way into a shard whose length is not yet known: in a file without a name, not in memory.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "renai/base/descriptor.hpp"

namespace renai {

/// How the file's name begins in the moment that it has one.
inline constexpr std::string_view kSpoolName = ".spool-";

class Spool {
 public:
  /// A file in `folder` that nobody else can open and that is gone with the process. Errors: ResourceError.
  explicit Spool(const std::filesystem::path& folder);
  void append(std::span<const std::byte> bytes);
  std::int64_t size() const { return size_ + static_cast<std::int64_t>(waiting_.size()); }
  /// Bytes [first, first + out.size()). Errors: ResourceError.
  void read(std::int64_t first, std::span<std::byte> out);

 private:
  [[noreturn]] void fail() const;
  void flush();

  std::filesystem::path folder_;
  Descriptor file_;
  std::int64_t size_ = 0;           ///< In the file.
  std::vector<std::byte> waiting_;  ///< Not yet in the file: small writes are gathered.
};

}  // namespace renai
