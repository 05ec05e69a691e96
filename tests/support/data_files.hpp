#pragma once
// Folders and small data sets for tests of files.

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "renai/base/error.hpp"
#include "renai/data/pack.hpp"

namespace renai::testing {

/// A folder of its own, removed with its contents.
class Folder {
 public:
  Folder() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() /
            ("renai-test-" + std::to_string(::getpid()) + "-" + std::to_string(count.fetch_add(1)));
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void spill(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// A synthetic set of 6 x 5 x 2 images in three classes.
inline Manifest pack_small(const std::filesystem::path& out, std::int64_t train = 50, std::int64_t val = 20,
                           std::int64_t shard_samples = 16) {
  SyntheticOptions synthetic;
  synthetic.train = train;
  synthetic.val = val;
  synthetic.height = 6;
  synthetic.width = 5;
  synthetic.channels = 2;
  synthetic.classes = 3;
  PackOptions options;
  options.out = out;
  options.shard_samples = shard_samples;
  return pack_synthetic(synthetic, options);
}

/// The same as a copy of one that is packed once: packing flushes to disk, which is slow.
inline void copy_small(const std::filesystem::path& out, std::int64_t train = 50, std::int64_t val = 20,
                       std::int64_t shard_samples = 16) {
  static std::map<std::array<std::int64_t, 3>, std::unique_ptr<Folder>> packed;
  std::unique_ptr<Folder>& folder = packed[{train, val, shard_samples}];
  if (!folder) {
    folder = std::make_unique<Folder>();
    pack_small(*folder / "set", train, val, shard_samples);
  }
  std::filesystem::copy(*folder / "set", out);
}

/// The message of the error of type `E` that `call` throws; a test failure for anything else.
template <typename E, typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace renai::testing
