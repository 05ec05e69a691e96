#include "h5_support.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "renai/base/check.hpp"
#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"

namespace renai::h5 {
namespace {

/// The library has one global state; its lock is global too. Recursive, because closing happens in destructors.
std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

/// Two-byte floats: fields from the sign down. The order of the calls matters: fields first, then the smaller size.
Type make_half(size_t exponent_bits, size_t mantissa_bits, size_t bias) {
  Type type = own<Type>(H5Tcopy(H5T_NATIVE_FLOAT));
  H5Tset_fields(type.get(), 15, mantissa_bits, exponent_bits, 0, mantissa_bits);
  H5Tset_size(type.get(), 2);
  H5Tset_ebias(type.get(), bias);
  return type;
}

DType integer_name(hid_t type, size_t size_bytes) {
  const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
  if (size_bytes == 1 && !is_signed) return DType::u8;
  if (size_bytes == 8 && !is_signed) return DType::u64;
  if (size_bytes == 8 || (size_bytes == 4 && !is_signed)) return DType::i64;
  return DType::i32;
}

DType float_name(hid_t type, size_t size_bytes) {
  if (size_bytes == 4) return DType::f32;
  if (size_bytes > 4) return DType::f64;
  size_t sign = 0, exponent_at = 0, exponent = 0, mantissa_at = 0, mantissa = 0;
  H5Tget_fields(type, &sign, &exponent_at, &exponent, &mantissa_at, &mantissa);
  return exponent == 8 ? DType::bf16 : DType::f16;
}

herr_t keep_first(unsigned position, const H5E_error2_t* entry, void* text) {
  // No exception may cross the C library.
  try {
    if (position == 0 && entry->desc != nullptr) *static_cast<std::string*>(text) = entry->desc;
  } catch (...) {
    return -1;
  }
  return 0;
}

}  // namespace

Session::Session() : guard_(library_mutex()) {
  // Every file is closed by its owner. The library's exit handler would only touch files that a full disk broke, and
  // crash.
  [[maybe_unused]] static const herr_t once = H5dont_atexit();
  // Per thread in thread-safe builds of the library, so it is set on every entry.
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Type make_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return own<Type>(H5Tcopy(H5T_NATIVE_FLOAT));
    case DType::f64: return own<Type>(H5Tcopy(H5T_NATIVE_DOUBLE));
    case DType::i32: return own<Type>(H5Tcopy(H5T_NATIVE_INT32));
    case DType::i64: return own<Type>(H5Tcopy(H5T_NATIVE_INT64));
    case DType::u8: return own<Type>(H5Tcopy(H5T_NATIVE_UINT8));
    case DType::u64: return own<Type>(H5Tcopy(H5T_NATIVE_UINT64));
    case DType::f16: return make_half(5, 10, 15);
    case DType::bf16: return make_half(8, 7, 127);
  }
  RENAI_CHECK(false, "an element type without a name");
}

ElementType classify(hid_t file_type) {
  // h5py stores booleans as an enumeration of bytes; the library reads enumerations as their numbers.
  if (H5Tget_class(file_type) == H5T_ENUM) return classify(own<Type>(H5Tget_super(file_type)).get());
  ElementType element;
  const H5T_class_t kind = H5Tget_class(file_type);
  const size_t size_bytes = H5Tget_size(file_type);
  if (kind != H5T_INTEGER && kind != H5T_FLOAT) return element;
  if (size_bytes == 0 || size_bytes > 16) return element;
  element.dtype = kind == H5T_INTEGER ? integer_name(file_type, size_bytes) : float_name(file_type, size_bytes);
  element.convertible = true;
  element.native = H5Tequal(file_type, make_type(element.dtype).get()) > 0;
  return element;
}

namespace {

/// The system's error number in the library's text; 0 where it has none.
int error_in(const std::string& text) {
  const std::string mark = "errno = ";
  const auto at = text.find(mark);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + mark.size());
}

/// The error number of a read when disk, network or host are the reason; 0 otherwise: that a damaged file leads to
/// places that no file has is an error of the system too.
int host_error_in(const std::string& text) {
  const int error = error_in(text);
  constexpr std::array kOfTheHost{EIO, ESTALE, ETIMEDOUT, EAGAIN, EACCES, EPERM, ENOMEM, ENXIO, ENODEV, EREMOTEIO};
  return std::find(kOfTheHost.begin(), kOfTheHost.end(), error) != kOfTheHost.end() ? error : 0;
}

/// The library's own text wraps the system's reason in positions and addresses; the reason is what helps.
std::string reason_in(const std::string& text) {
  const std::string mark = "error message = '";
  if (const auto at = text.find(mark); at != std::string::npos) {
    const auto end = text.find('\'', at + mark.size());
    if (end != std::string::npos) return text.substr(at + mark.size(), end - at - mark.size());
  }
  return text.empty() ? "the HDF5 library gives no reason" : text;
}

std::string take_text() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
  H5Eclear2(H5E_DEFAULT);
  return text;
}

}  // namespace

Failure take_failure() {
  const std::string text = take_text();
  return {reason_in(text), host_error_in(text), text.starts_with("unable to lock file")};
}

void fail_read(const std::filesystem::path& path, const std::string& what) {
  const Failure failure = take_failure();
  if (failure.host_error != 0) fail_reading(what + " of " + path.string(), failure.host_error);
  fail_data(path, what, failure.reason);
}

Properties file_access() {
  Properties access = own<Properties>(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG);
#if H5_VERSION_GE(1, 10, 7)
  H5Pset_file_locking(access.get(), false, true);
#else
  ::setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);
#endif
  return access;
}

void fail_data(const std::filesystem::path& path, const std::string& what, const std::string& why) {
  throw DataError(what + " of " + path.string(), why, "the file is damaged or not what is expected");
}

void fail_write(const std::filesystem::path& path, const std::string& what) {
  const std::string failed = "writing " + path.string() + " (" + what + ")", text = take_text();
  if (const int error = error_in(text); error > 0) fail_writing(failed, error);
  throw ResourceError(failed, reason_in(text), "check the disk's free space and permissions");
}

}  // namespace renai::h5
