#pragma once
// A data set in memory: its files read once, so that the operating system holds them for all ranks of a host.

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "renai/data/dataset.hpp"

namespace renai {

/// Files of a data set, each once.
struct FileSet {
  std::vector<std::filesystem::path> paths;
  std::set<std::string> known;  ///< The same as `paths`, for finding.
  std::int64_t size_bytes = 0;
  /// Adds the shards of a split; those that are in already are not counted again. Errors: DataError when one is
  /// missing.
  void add(const std::filesystem::path& directory, const Manifest& manifest, const std::string& split);
};

/// Bytes of a split's files; those that are missing count nothing: who opens them says so.
std::int64_t stored_file_bytes(const std::filesystem::path& directory, const Manifest& manifest,
                               const std::string& split);

/// Reads every `parts`-th file of a set from `part` on, on a thread of its own.
class CacheFiller {
 public:
  CacheFiller(FileSet files, int part, int parts);
  ~CacheFiller();
  CacheFiller(const CacheFiller&) = delete;
  CacheFiller& operator=(const CacheFiller&) = delete;

  std::int64_t read_bytes() const { return read_bytes_; }
  /// Whether all is read. Errors: of the file that could not be, as fail_reading().
  bool done() const;

 private:
  void run(int part, int parts);
  void read_file(const std::filesystem::path& path);

  FileSet files_;
  std::atomic<std::int64_t> read_bytes_{0};
  std::atomic<bool> done_{false}, stop_{false};
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace renai
