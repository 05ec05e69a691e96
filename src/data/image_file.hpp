#pragma once
// One image file as what a shard stores of it.

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace renai {

/// What is made of the files of a pack.
struct ImageGoal {
  bool jpeg = true;  ///< JPEG bytes; else pixels, size x size x 3.
  /// jpeg: statistics are taken from images whose shorter side is decoded no smaller than this.
  std::int64_t size = 224;
};

/// A file's bytes for the shard, or why it cannot be used.
struct StoredImage {
  std::vector<std::byte> bytes;
  std::string refusal;        ///< Empty when the file is good.
  bool encoded_here = false;  ///< Came as another kind and was encoded as JPEG.
  /// By channel: mean of pixels and of their squares, in units of 2^-16, so that each image counts alike.
  std::array<std::uint64_t, 3> mean{}, square_mean{};
  bool measured = false;

  std::int64_t held_bytes() const { return static_cast<std::int64_t>(bytes.size()); }
};

/// Bounds the bytes that threads hold at the same time.
class ByteRoom {
 public:
  explicit ByteRoom(std::int64_t most_bytes) : most_bytes_(most_bytes) {}
  /// Waits until `bytes` fit, or nothing else is in the room.
  void enter(std::int64_t bytes);
  void leave(std::int64_t bytes);

 private:
  const std::int64_t most_bytes_;
  std::int64_t bytes_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// What all threads of a rank share, so that memory is bounded whatever the files are. A thread enters `files` first,
/// and whoever is in `pixels` waits for nothing, so no two wait for each other.
struct ImageRooms {
  ByteRoom files{std::int64_t{96} << 20};    ///< Files as read.
  ByteRoom pixels{std::int64_t{384} << 20};  ///< What decoding them takes.
};

/// Reads files for one thread.
class ImageFileReader {
 public:
  ImageFileReader(const ImageGoal& goal, ImageRooms& rooms);
  ~ImageFileReader();
  ImageFileReader(const ImageFileReader&) = delete;
  ImageFileReader& operator=(const ImageFileReader&) = delete;

  /// Every file is decoded in full detail of its codes, so damage anywhere is found; `measure`: also its statistics.
  /// Whatever is wrong with the file is in the result. Errors: std::bad_alloc, and ResourceError where the system could
  /// not read it: that says nothing of the file, so no set may depend on it.
  StoredImage read(const std::filesystem::path& path, bool measure);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace renai
