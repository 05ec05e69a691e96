#include "renai/io/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include "renai/base/descriptor.hpp"
#include "renai/base/file_error.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail_file(const fs::path& path, int error) { fail_writing("writing " + path.string(), error); }

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

/// In the same folder, so that the rename stays within one file system. The process id and a count keep writers apart.
fs::path temporary_for(const fs::path& path) {
  static std::atomic<unsigned> count{0};
  return folder_of(path) / (path.filename().string() + "." + std::to_string(::getpid()) + "-" +
                            std::to_string(count.fetch_add(1)) + ".partial");
}

/// Some file systems cannot flush a folder; they say so with EINVAL or ENOTSUP, and then nothing is lost by going on.
void flush_to_disk(const fs::path& path, bool folder, const fs::path& named) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | (folder ? O_DIRECTORY : 0)));
  if (!file) fail_file(named, errno);
  if (::fsync(file.get()) != 0 && errno != EINVAL && errno != ENOTSUP) fail_file(named, errno);
}

void write_whole(const fs::path& temporary, std::string_view text, const fs::path& named) {
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) fail_file(named, errno);
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_file(named, errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::close(file.release()) != 0) fail_file(named, errno);
}

}  // namespace

void replace_file(const fs::path& path, const std::function<void(const fs::path&)>& write) {
  const fs::path temporary = temporary_for(path);
  try {
    write(temporary);
    flush_to_disk(temporary, false, path);
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail_file(path, errno);
  } catch (...) {
    std::error_code ignored;
    fs::resize_file(temporary, 0, ignored);  // Frees the space even if a library still holds the file open.
    fs::remove(temporary, ignored);
    throw;
  }
  flush_to_disk(folder_of(path), true, path);
}

void replace_text(const fs::path& path, std::string_view text) {
  replace_file(path, [&](const fs::path& temporary) { write_whole(temporary, text, path); });
}

bool is_temporary(const fs::path& path) {
  // "<name>.<process>-<count>.partial"
  constexpr std::string_view kDigits = "0123456789";
  if (path.extension() != ".partial") return false;
  const std::string marks = path.stem().extension().string();
  const std::size_t dash = marks.find('-');
  if (dash == std::string::npos || dash < 2 || dash + 1 == marks.size()) return false;
  return marks.find_first_not_of(kDigits, 1) == dash && marks.find_first_not_of(kDigits, dash + 1) == std::string::npos;
}

void remove_temporaries(const fs::path& folder, const std::function<bool(const std::string& name)>& own) {
  std::error_code failure;
  fs::directory_iterator entry(folder, failure);
  for (; !failure && entry != fs::directory_iterator{}; entry.increment(failure)) {
    const fs::path path = entry->path();
    std::error_code kept;
    if (is_temporary(path) && own(path.stem().stem().string())) fs::remove(path, kept);
  }
}

std::string read_text(const fs::path& path) {
  const auto fail = [&path](int error) { fail_reading("reading " + path.string(), error); };
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) fail(errno);
  std::string text;
  char block[1 << 14];
  for (;;) {
    const ssize_t got = ::read(file.get(), block, sizeof(block));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(errno);
    if (got == 0) return text;
    text.append(block, static_cast<std::size_t>(got));
  }
}

void require_writable_directory(const fs::path& path) {
  const auto fail = [&path](int error) { fail_writing("folder " + path.string() + " cannot be written", error); };
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail(error.value());
  if (!fs::is_directory(path, error)) fail(ENOTDIR);
  // Only writing proves it: permissions alone say nothing about read-only mounts, quotas or the superuser.
  const fs::path probe = temporary_for(path / "probe");
  // Not O_EXCL: in containers of two hosts process ids may be equal, and both ranks may look at once.
  Descriptor file(::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!file) fail(errno);
  ::unlink(probe.c_str());
}

}  // namespace renai
