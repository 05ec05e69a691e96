#pragma once
// Errors: one exception type per exit code, each with what failed, why, and what to do.

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace renai {

/// Kind of failure; the value is the process exit code.
enum class ErrorKind : int { user = 2, data = 3, resource = 4, backend = 5, peer = 6, internal = 70 };

/// Name of a kind for messages, e.g. "DataError".
std::string_view error_kind_name(ErrorKind kind);

/// A failure with what failed, why, and a remedy. `what()` joins the three with "; ".
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string failed, std::string why, std::string remedy,
        std::source_location where = std::source_location::current());

  ErrorKind kind() const noexcept { return kind_; }
  int exit_code() const noexcept { return static_cast<int>(kind_); }
  const std::string& failed() const noexcept { return failed_; }
  const std::string& why() const noexcept { return why_; }
  const std::string& remedy() const noexcept { return remedy_; }
  const std::source_location& where() const noexcept { return where_; }

 private:
  ErrorKind kind_;
  std::string failed_, why_, remedy_;
  std::source_location where_;
};

/// One subclass per kind, so that callers catch what they can handle.
template <ErrorKind K>
class ErrorOf : public Error {
 public:
  ErrorOf(std::string failed, std::string why, std::string remedy = {},
          std::source_location where = std::source_location::current())
      : Error(K, std::move(failed), std::move(why), std::move(remedy), where) {}
};

using UserError = ErrorOf<ErrorKind::user>;          ///< Bad option, recipe or model: exit 2.
using DataError = ErrorOf<ErrorKind::data>;          ///< Damaged or contradictory files: exit 3.
using ResourceError = ErrorOf<ErrorKind::resource>;  ///< Disk, memory, permissions: exit 4.
using BackendError = ErrorOf<ErrorKind::backend>;    ///< A compute library or device refused: exit 5.
using PeerError = ErrorOf<ErrorKind::peer>;          ///< Another rank failed or stalled: exit 6.
using InternalError = ErrorOf<ErrorKind::internal>;  ///< A bug in renai: exit 70.

}  // namespace renai
