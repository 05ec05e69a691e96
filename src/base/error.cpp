#include "renai/base/error.hpp"

#include "renai/base/check.hpp"

namespace renai {
namespace {

std::string join_message(const std::string& failed, const std::string& why, const std::string& remedy) {
  std::string text = failed;
  if (!why.empty()) text += "; " + why;
  if (!remedy.empty()) text += "; " + remedy;
  return text;
}

}  // namespace

std::string_view error_kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::user: return "UserError";
    case ErrorKind::data: return "DataError";
    case ErrorKind::resource: return "ResourceError";
    case ErrorKind::backend: return "BackendError";
    case ErrorKind::peer: return "PeerError";
    case ErrorKind::internal: return "InternalError";
  }
  return "Error";
}

Error::Error(ErrorKind kind, std::string failed, std::string why, std::string remedy, std::source_location where)
    : std::runtime_error(join_message(failed, why, remedy)),
      kind_(kind),
      failed_(std::move(failed)),
      why_(std::move(why)),
      remedy_(std::move(remedy)),
      where_(where) {}

void fail_check(const char* expression, const std::string& message, std::source_location where) {
  throw InternalError(
      message,
      std::string("the check '") + expression + "' failed at " + where.file_name() + ":" + std::to_string(where.line()),
      "please report this with the command line", where);
}

}  // namespace renai
