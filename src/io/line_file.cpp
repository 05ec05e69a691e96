#include "renai/io/line_file.hpp"

#include <fcntl.h>

#include <cerrno>
#include <system_error>

#include "renai/base/file_error.hpp"
#include "renai/io/atomic_file.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail(const fs::path& path, int error) { fail_writing("writing " + path.string(), error); }

}  // namespace

LineFile::LineFile(fs::path path, const std::vector<std::string>& lines) : path_(std::move(path)) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  std::error_code unknown;
  // The file that a link names is replaced, not the link.
  if (fs::is_symlink(path_, unknown) && fs::exists(path_, unknown)) path_ = fs::canonical(path_, unknown);
  const bool replaces = fs::is_regular_file(path_, unknown);
  if (replaces) replace_text(path_, text);
  file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file_) fail(path_, errno);
  if (replaces) return;
  waiting_ = std::move(text);
  flush();
}

LineFile::~LineFile() {
  if (file_) write_waiting();
}

int LineFile::write_waiting() noexcept {
  std::size_t done = 0;
  int error = 0;
  while (done < waiting_.size() && error == 0) {
    const ssize_t written = ::write(file_.get(), waiting_.data() + done, waiting_.size() - done);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  waiting_.erase(0, done);
  return error;
}

void LineFile::put(std::string_view line) {
  waiting_.append(line).push_back('\n');
  const int error = write_waiting();
  if (error != 0 && waiting_.size() > kMostWaiting) fail(path_, error);
}

void LineFile::flush() {
  if (const int error = write_waiting(); error != 0) fail(path_, error);
}

std::vector<std::string> LineFile::read(const fs::path& path) {
  std::error_code unknown;
  std::vector<std::string> lines;
  if (!fs::is_regular_file(path, unknown)) return lines;
  const std::string text = read_text(path);
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

}  // namespace renai
