#include "positioned_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"
#include "renai/data/read_mode.hpp"

namespace renai {
namespace {

constexpr std::chrono::milliseconds kFirstPause{10}, kLongestPause{2560};
constexpr int kPauseGrowth = 4;

bool may_pass(int error) { return error == EIO || error == ESTALE || error == ETIMEDOUT || error == EAGAIN; }

std::int64_t open_now() {
  std::error_code ignored;
  std::int64_t count = 0;
  for (std::filesystem::directory_iterator at("/proc/self/fd", ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    ++count;
  }
  return count;
}

constexpr std::size_t kPageBytes = 4096;  ///< What any device's memory alignment divides.
constexpr std::int64_t kBounceBytes = std::int64_t{1} << 20;
constexpr std::int64_t kMostBlockBytes = std::int64_t{1} << 16;

struct FreeMemory {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};

/// Where direct reads of this thread arrive. Kept; nullptr when there is no memory.
std::byte* bounce_buffer() noexcept {
  thread_local std::unique_ptr<std::byte, FreeMemory> buffer;
  if (!buffer) buffer.reset(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, kBounceBytes)));
  return buffer.get();
}

std::int64_t round_down(std::int64_t value, std::int64_t block) { return value / block * block; }

/// What places and sizes of direct reads must be multiples of; 0 where the file cannot be read so, with errno.
std::int64_t direct_block_bytes(int file, const struct stat& status) {
#ifdef STATX_DIOALIGN
  struct statx found {};
  if (::statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) == 0 && (found.stx_mask & STATX_DIOALIGN) != 0) {
    const bool fits = found.stx_dio_offset_align > 0 && found.stx_dio_offset_align <= kMostBlockBytes &&
                      found.stx_dio_mem_align <= kPageBytes;
    errno = EINVAL;
    return fits ? found.stx_dio_offset_align : 0;
  }
#endif
  const bool usable = status.st_blksize >= 512 && status.st_blksize <= kMostBlockBytes &&
                      std::has_single_bit(static_cast<std::uint64_t>(status.st_blksize));
  const std::int64_t block = usable ? status.st_blksize : static_cast<std::int64_t>(kPageBytes);
  std::byte* buffer = bounce_buffer();
  // Some file systems refuse the first read and not the opening.
  return buffer != nullptr && ::pread(file, buffer, static_cast<std::size_t>(block), 0) >= 0 ? block : 0;
}

}  // namespace

PositionedFile::PositionedFile(std::filesystem::path path, bool direct) : path_(std::move(path)), file_(open_file()) {
  struct stat status {};
  if (!file_ || ::fstat(file_.get(), &status) != 0) {
    fail_reading("opening " + path_.string(), errno);
  }
  size_bytes_ = status.st_size;
  if (!direct) return;
  block_bytes_ = 1;  // Any: for opening it once more, past the page cache.
  file_ = open_file();
  block_bytes_ = file_ ? direct_block_bytes(file_.get(), status) : 0;
  if (block_bytes_ > 0) return;
  throw DirectReadRefused("reading " + path_.string() + " past the page cache (--read-mode direct)",
                          "its file system refuses: " + std::generic_category().message(errno),
                          "use --read-mode cached");
}

Descriptor PositionedFile::open_file() const {
  return Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | (block_bytes_ > 0 ? O_DIRECT : 0)));
}

/// As pread(): how many bytes came, 0 at the end of the file, -1 with errno.
std::int64_t PositionedFile::read_some(int file, std::int64_t at, std::span<std::byte> out) const noexcept {
  return block_bytes_ > 0 ? read_blocks(file, at, out) : ::pread(file, out.data(), out.size(), at);
}

/// The blocks around `out`, as many as the buffer holds; what comes of them is copied.
std::int64_t PositionedFile::read_blocks(int file, std::int64_t at, std::span<std::byte> out) const noexcept {
  std::byte* buffer = bounce_buffer();
  if (buffer == nullptr) {
    errno = ENOMEM;
    return -1;
  }
  const std::int64_t begin = round_down(at, block_bytes_), end = at + static_cast<std::int64_t>(out.size());
  const std::int64_t wanted = std::min(round_down(end + block_bytes_ - 1, block_bytes_) - begin, kBounceBytes);
  const ssize_t got = ::pread(file, buffer, static_cast<std::size_t>(wanted), begin);
  if (got < 0) return -1;
  // Less than a block comes at the end of the file only, where its last bytes are no whole block.
  const std::int64_t useful = std::min(begin + got, end) - at;
  if (useful <= 0) return 0;
  std::memcpy(out.data(), buffer + (at - begin), static_cast<std::size_t>(useful));
  return useful;
}

bool PositionedFile::try_read(std::int64_t at, std::span<std::byte> out) const noexcept {
  while (!out.empty()) {
    const std::int64_t got = read_some(file_.get(), at, out);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(got));
    at += got;
  }
  return true;
}

bool PositionedFile::read(std::int64_t at, std::span<std::byte> out) const {
  Descriptor again;  // Of this read alone: other threads may be using the first one.
  std::chrono::milliseconds pause = kFirstPause;
  while (!out.empty()) {
    const std::int64_t got = read_some(again ? again.get() : file_.get(), at, out);
    const int error = got < 0 ? errno : 0;
    if (got == 0) return false;
    if (got > 0) {
      out = out.subspan(static_cast<std::size_t>(got));
      at += got;
      continue;
    }
    if (error == EINTR) continue;
    if (!may_pass(error) || pause > kLongestPause) {
      throw ResourceError(
          "reading " + std::to_string(out.size()) + " bytes at offset " + std::to_string(at) + " of " + path_.string(),
          std::generic_category().message(error) + " (errno " + std::to_string(error) + ")" +
              (may_pass(error) ? ", and asking again did not help" : ""),
          "check the disk or the network file system");
    }
    std::this_thread::sleep_for(pause);
    pause *= kPauseGrowth;
    if (error == ESTALE) again = open_file();
  }
  return true;
}

void allow_open_files(std::int64_t count) {
  // Logs, checkpoints, links between ranks: what will be opened yet, at least and where the system allows it.
  constexpr std::int64_t kFewOthers = 64, kOthers = 512;
  const std::int64_t held = open_now() + count;
  const auto needed = static_cast<rlim_t>(held + kFewOthers), wanted = static_cast<rlim_t>(held + kOthers);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= wanted) return;
  const bool bounded = limit.rlim_max != RLIM_INFINITY;
  if (bounded && limit.rlim_max < needed) {
    throw ResourceError("opening " + std::to_string(count) + " shards",
                        "a process may have " + std::to_string(limit.rlim_max) + " files open here, and needs " +
                            std::to_string(needed),
                        "raise the limit (ulimit -Hn), or pack with more samples in a shard");
  }
  const rlim_t before = std::exchange(limit.rlim_cur, bounded ? std::min(wanted, limit.rlim_max) : wanted);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0 && before < needed) {
    throw ResourceError("raising the limit of open files to " + std::to_string(limit.rlim_cur),
                        std::generic_category().message(errno), "raise it before the start (ulimit -n)");
  }
}

}  // namespace renai
