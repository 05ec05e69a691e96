#pragma once
// What the HDF5 code shares: handles, the lock around the library, element types, reasons of failures.

#include <hdf5.h>

#include <filesystem>
#include <mutex>
#include <string>

#include "renai/base/handle.hpp"
#include "renai/tensor/dtype.hpp"

namespace renai::h5 {

/// Holds the library's only lock and silences its printing. Every library call happens under one of these.
class Session {
 public:
  Session();

 private:
  std::lock_guard<std::recursive_mutex> guard_;
};

template <herr_t (*Close)(hid_t)>
struct CloseWith {
  void operator()(hid_t id) const noexcept { Close(id); }
};
template <herr_t (*Close)(hid_t)>
using Id = Handle<hid_t, CloseWith<Close>, hid_t{-1}>;

using File = Id<H5Fclose>;
using DataSet = Id<H5Dclose>;
using Space = Id<H5Sclose>;
using Type = Id<H5Tclose>;
using Attribute = Id<H5Aclose>;
using Object = Id<H5Oclose>;
using Group = Id<H5Gclose>;
using Properties = Id<H5Pclose>;

/// Turns the library's "negative means failed" into an empty handle.
template <typename T>
T own(hid_t id) {
  return id < 0 ? T{} : T(id);
}

/// What the library calls an object; an empty name is the whole file.
inline std::string object_path(const std::string& name) { return name.empty() ? "/" : name; }

/// Memory and file type of a DType, in native byte order.
Type make_type(DType dtype);
/// What a file's element type is called here, and whether its bytes are exactly that.
struct ElementType {
  DType dtype = DType::f32;
  bool convertible = false, native = false;
};
ElementType classify(hid_t file_type);

/// The innermost entry of the library's error stack. Taking it clears the stack.
struct Failure {
  std::string reason;    ///< The cause, e.g. "No space left on device".
  int host_error = 0;    ///< The system's error number where disk, network or host are the reason, else 0.
  bool locking = false;  ///< A lock on the file was refused.
};
Failure take_failure();

/// Fails for what the library's error stack says. Errors: ResourceError where the system would not read the file,
/// otherwise DataError; `what` as in fail_data.
[[noreturn]] void fail_read(const std::filesystem::path& path, const std::string& what);

/// File access with locking off (files are complete before they get their name, so there is nothing to lock).
Properties file_access();

/// Errors: DataError; `what` is the action, e.g. "reading dataset 'labels'".
[[noreturn]] void fail_data(const std::filesystem::path& path, const std::string& what, const std::string& why);
/// Errors: ResourceError with the reason of the library, and what to do about the system's.
[[noreturn]] void fail_write(const std::filesystem::path& path, const std::string& what);

}  // namespace renai::h5
