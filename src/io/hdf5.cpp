#include "renai/io/hdf5.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include "h5_file.hpp"
#include "h5_storage.hpp"
#include "renai/base/check.hpp"
#include "renai/base/descriptor.hpp"
#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"

namespace renai {
namespace fs = std::filesystem;

H5File::Impl::~Impl() {
  h5::Session session;
  if (broken) {
    // The library cannot close a file whose cache it cannot write (it would fail again, then crash): leave it open.
    for (auto& [name, set] : opened) set.release();
    file.release();
  }
  opened.clear();
  file.reset();
  H5Eclear2(H5E_DEFAULT);
}

void H5File::Impl::fail(const std::string& what) {
  broken = true;
  h5::fail_write(path, what);
}

hid_t H5File::Impl::dataset(const std::string& name) {
  if (const auto at = opened.find(name); at != opened.end()) return at->second.get();
  auto set = h5::own<h5::DataSet>(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT));
  if (!set) h5::fail_read(path, "dataset '" + name + "'");
  return opened.emplace(name, std::move(set)).first->second.get();
}

namespace {

constexpr int kMaxExtents = 32;  // The library's own limit on axes.

std::vector<hsize_t> extents_of(hid_t dataset, const fs::path& path, const std::string& name) {
  h5::Space space = h5::own<h5::Space>(H5Dget_space(dataset));
  const int rank = space ? H5Sget_simple_extent_ndims(space.get()) : -1;
  if (rank < 0 || rank > kMaxExtents || H5Sget_simple_extent_type(space.get()) == H5S_NULL) {
    h5::fail_data(path, "dataset '" + name + "'", "it has no extents");
  }
  std::vector<hsize_t> extents(static_cast<std::size_t>(rank));
  if (rank > 0) H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
  return extents;
}

/// Selects rows of axis 0 in memory and file for a transfer of exactly `size_bytes`.
struct Selection {
  h5::Space memory, file;
};
Selection select_rows(hid_t dataset, const fs::path& path, const std::string& name, DType dtype, std::int64_t first,
                      std::int64_t count, std::size_t size_bytes) {
  std::vector<hsize_t> extents = extents_of(dataset, path, name);
  const hsize_t rows = extents.empty() ? 1 : extents[0];
  if (first < 0 || count < 0 || static_cast<hsize_t>(first) > rows ||
      static_cast<hsize_t>(count) > rows - static_cast<hsize_t>(first)) {
    h5::fail_data(path, "dataset '" + name + "'",
                  "rows " + std::to_string(first) + " to " + std::to_string(first + count) + " of " +
                      std::to_string(rows) + " were asked for");
  }
  // In floating point first: extents of a damaged file may overflow.
  double elems = static_cast<double>(count);
  for (std::size_t axis = 1; axis < extents.size(); ++axis) elems *= static_cast<double>(extents[axis]);
  if (elems * static_cast<double>(dtype_bytes(dtype)) != static_cast<double>(size_bytes)) {
    h5::fail_data(path, "dataset '" + name + "'", "its extents do not fit the memory they go to");
  }
  Selection selection;
  selection.file = h5::own<h5::Space>(H5Dget_space(dataset));
  if (extents.empty()) {
    selection.memory = h5::own<h5::Space>(H5Screate(H5S_SCALAR));
    return selection;
  }
  std::vector<hsize_t> start(extents.size(), 0), block = extents;
  start[0] = static_cast<hsize_t>(first);
  block[0] = static_cast<hsize_t>(count);
  if (count > 0)
    H5Sselect_hyperslab(selection.file.get(), H5S_SELECT_SET, start.data(), nullptr, block.data(), nullptr);
  selection.memory = h5::own<h5::Space>(H5Screate_simple(static_cast<int>(block.size()), block.data(), nullptr));
  return selection;
}

/// Why the library would not open a file that the system opens.
[[noreturn]] void fail_format(const fs::path& path) {
  const auto [reason, host_error, locking] = h5::take_failure();
  std::error_code error;
  const auto size = fs::file_size(path, error);
  const std::string failed = "opening " + path.string();
  if (locking) {
    throw ResourceError(
        failed, host_error == EAGAIN ? "another program has it open for writing" : "it cannot be locked: " + reason,
        "wait until that program has ended, or export HDF5_USE_FILE_LOCKING=FALSE");
  }
  if (host_error != 0) fail_reading(failed, host_error);
  if (reason.find("already open for write") != std::string::npos) {
    throw DataError(failed, "a program has it open for writing, or was killed while it had",
                    "wait until that program has ended, make the file again, or clear its mark with h5clear -s");
  }
  if (!error && size == 0) throw DataError(failed, "the file is empty", "make it again");
  if (reason.find("truncated") != std::string::npos) {
    throw DataError(failed, "the file is truncated (" + reason + ")", "copy or make it again");
  }
  if (H5Fis_hdf5(path.c_str()) <= 0) {
    H5Eclear2(H5E_DEFAULT);
    throw DataError(failed, "it is not an HDF5 file, or its start is damaged", "give another file, or make it again");
  }
  throw DataError(failed, reason, "the file is damaged");
}

h5::Properties plain_creation(hid_t kind) {
  h5::Properties creation = h5::own<h5::Properties>(H5Pcreate(kind));
  H5Pset_obj_track_times(creation.get(), false);  // The same content gives the same bytes.
  return creation;
}

}  // namespace

H5File::H5File(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
H5File::H5File(H5File&&) noexcept = default;
H5File& H5File::operator=(H5File&&) noexcept = default;
H5File::~H5File() = default;

H5File H5File::open(const fs::path& path) {
  const std::string failed = "opening " + path.string();
  {
    // Without O_NONBLOCK the opening of a pipe would wait for a writer for ever.
    const Descriptor probe(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    if (!probe || ::fstat(probe.get(), &status) != 0) fail_reading(failed, errno);
    if (S_ISDIR(status.st_mode)) throw DataError(failed, "it is a folder, not a file", "name the file");
    if (!S_ISREG(status.st_mode)) throw DataError(failed, "it is no regular file", "name another file");
  }
  h5::Session session;
  auto impl = std::make_unique<Impl>();
  const h5::Properties access = h5::file_access();
  impl->path = path;
  impl->file = h5::own<h5::File>(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()));
  if (!impl->file) fail_format(path);
  return H5File(std::move(impl));
}

H5File H5File::create(const fs::path& path) {
  h5::Session session;
  auto impl = std::make_unique<Impl>();
  const h5::Properties access = h5::file_access();
  impl->path = path;
  impl->writable = true;
  impl->file = h5::own<h5::File>(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()));
  if (!impl->file) h5::fail_write(path, "creating the file");
  return H5File(std::move(impl));
}

H5File H5File::modify(const fs::path& path) {
  h5::Session session;
  auto impl = std::make_unique<Impl>();
  const h5::Properties access = h5::file_access();
  impl->path = path;
  impl->writable = true;
  impl->file = h5::own<h5::File>(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get()));
  if (!impl->file) fail_format(path);
  return H5File(std::move(impl));
}

bool H5File::exists(const std::string& name) const {
  h5::Session session;
  if (name.empty() || name == "/") return true;
  // The library wants every part of the path to exist before it answers for the last one.
  for (std::size_t end = name.find('/', 1);; end = name.find('/', end + 1)) {
    const std::string part = name.substr(0, end);
    const bool found = H5Lexists(impl_->file.get(), part.c_str(), H5P_DEFAULT) > 0 &&
                       H5Oexists_by_name(impl_->file.get(), part.c_str(), H5P_DEFAULT) > 0;
    if (!found) {
      H5Eclear2(H5E_DEFAULT);
      return false;
    }
    if (end == std::string::npos) return true;
  }
}

std::string H5File::broken_link(const std::string& name) const {
  h5::Session session;
  return h5::find_broken_link(impl_->file.get(), name);
}

bool H5File::is_group(const std::string& name) const {
  h5::Session session;
  const auto opened = h5::own<h5::Group>(H5Gopen2(impl_->file.get(), h5::object_path(name).c_str(), H5P_DEFAULT));
  H5Eclear2(H5E_DEFAULT);
  return static_cast<bool>(opened);
}

std::vector<std::string> H5File::children(const std::string& group) const {
  h5::Session session;
  h5::Group opened = h5::own<h5::Group>(H5Gopen2(impl_->file.get(), h5::object_path(group).c_str(), H5P_DEFAULT));
  H5G_info_t info{};
  if (!opened || H5Gget_info(opened.get(), &info) < 0) {
    h5::fail_read(impl_->path, "group '" + group + "'");
  }
  std::vector<std::string> names;
  for (hsize_t i = 0; i < info.nlinks; ++i) {
    const ssize_t length =
        H5Lget_name_by_idx(opened.get(), ".", H5_INDEX_NAME, H5_ITER_INC, i, nullptr, 0, H5P_DEFAULT);
    if (length < 0) h5::fail_read(impl_->path, "group '" + group + "'");
    std::string name(static_cast<std::size_t>(length), '\0');
    if (H5Lget_name_by_idx(opened.get(), ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size() + 1,
                           H5P_DEFAULT) < 0) {
      h5::fail_read(impl_->path, "group '" + group + "'");
    }
    names.push_back(std::move(name));
  }
  return names;
}

H5DatasetInfo H5File::info(const std::string& dataset) const {
  h5::Session session;
  const hid_t set = impl_->dataset(dataset);
  H5DatasetInfo info;
  for (const hsize_t extent : extents_of(set, impl_->path, dataset)) {
    info.extents.push_back(static_cast<std::int64_t>(extent));
  }
  h5::Type type = h5::own<h5::Type>(H5Dget_type(set));
  h5::Properties creation = h5::own<h5::Properties>(H5Dget_create_plist(set));
  if (!type || !creation) h5::fail_read(impl_->path, "dataset '" + dataset + "'");
  h5::require_readable(set, creation.get(), impl_->path, dataset);
  const h5::ElementType element = h5::classify(type.get());
  info.dtype = element.dtype;
  info.convertible = element.convertible;
  const bool plain = H5Pget_layout(creation.get()) == H5D_CONTIGUOUS && H5Pget_external_count(creation.get()) == 0 &&
                     h5::lies_in(impl_->file.get(), set);
  const haddr_t offset = plain && element.native ? H5Dget_offset(set) : HADDR_UNDEF;
  if (offset != HADDR_UNDEF) {
    info.contiguous = true;
    info.file_offset = static_cast<std::int64_t>(offset);
  }
  H5Eclear2(H5E_DEFAULT);
  return info;
}

std::int64_t H5File::most_bytes(const std::string& dataset) const {
  constexpr std::uint64_t kMostExpansion = 2048;  // Deflate reaches 1032.
  constexpr std::uint64_t kUnwritten = std::uint64_t{1} << 20;
  h5::Session session;
  const hid_t set = impl_->dataset(dataset);
  const h5::Properties creation = h5::own<h5::Properties>(H5Dget_create_plist(set));
  const H5D_layout_t layout = creation ? H5Pget_layout(creation.get()) : H5D_LAYOUT_ERROR;
  const bool elsewhere = layout == H5D_VIRTUAL || (creation && H5Pget_external_count(creation.get()) > 0) ||
                         !h5::lies_in(impl_->file.get(), set);
  const std::uint64_t stored = elsewhere ? 0 : H5Dget_storage_size(set);
  H5Eclear2(H5E_DEFAULT);
  if (elsewhere) return std::numeric_limits<std::int64_t>::max();
  std::error_code error;
  const std::uint64_t file_bytes = fs::file_size(impl_->path, error);
  const std::uint64_t most = std::min(stored, error ? stored : file_bytes);
  return static_cast<std::int64_t>(std::min(most, std::uint64_t{1} << 50) * kMostExpansion + kUnwritten);
}

void H5File::read(const std::string& dataset, DType dtype, std::int64_t first, std::int64_t count,
                  std::span<std::byte> out) const {
  h5::Session session;
  const hid_t set = impl_->dataset(dataset);
  const Selection rows = select_rows(set, impl_->path, dataset, dtype, first, count, out.size());
  if (out.empty()) return;
  const h5::Type type = h5::make_type(dtype);
  if (H5Dread(set, type.get(), rows.memory.get(), rows.file.get(), H5P_DEFAULT, out.data()) < 0) {
    h5::fail_read(impl_->path, "reading dataset '" + dataset + "'");
  }
}

void H5File::keep_chunks(const std::string& dataset, std::int64_t most_bytes) const {
  h5::Session session;
  const hid_t set = impl_->dataset(dataset);
  const std::vector<hsize_t> extents = extents_of(set, impl_->path, dataset);
  const h5::Properties access = h5::chunk_access(set, extents, most_bytes);
  if (!access) return;
  // The size of the cache is what a dataset is opened with.
  impl_->opened.erase(dataset);
  auto again = h5::own<h5::DataSet>(H5Dopen2(impl_->file.get(), dataset.c_str(), access.get()));
  if (!again) h5::fail_read(impl_->path, "dataset '" + dataset + "'");
  impl_->opened.emplace(dataset, std::move(again));
}

void H5File::create_group(const std::string& name) {
  h5::Session session;
  const h5::Properties creation = plain_creation(H5P_GROUP_CREATE);
  const auto made =
      h5::own<h5::Group>(H5Gcreate2(impl_->file.get(), name.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT));
  if (!made) impl_->fail("creating group '" + name + "'");
}

void H5File::create_dataset(const std::string& name, DType dtype, std::span<const std::int64_t> extents) {
  h5::Session session;
  std::vector<hsize_t> sizes(extents.begin(), extents.end());
  h5::Space space = h5::own<h5::Space>(
      sizes.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr));
  const h5::Properties creation = plain_creation(H5P_DATASET_CREATE);
  const h5::Type type = h5::make_type(dtype);
  h5::DataSet set = h5::own<h5::DataSet>(
      H5Dcreate2(impl_->file.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT));
  if (!set) impl_->fail("creating dataset '" + name + "'");
  impl_->opened.insert_or_assign(name, std::move(set));
}

void H5File::write(const std::string& dataset, DType dtype, std::int64_t first, std::int64_t count,
                   std::span<const std::byte> data) {
  h5::Session session;
  const hid_t set = impl_->dataset(dataset);
  const Selection rows = select_rows(set, impl_->path, dataset, dtype, first, count, data.size());
  if (data.empty()) return;
  const h5::Type type = h5::make_type(dtype);
  if (H5Dwrite(set, type.get(), rows.memory.get(), rows.file.get(), H5P_DEFAULT, data.data()) < 0) {
    impl_->fail("dataset '" + dataset + "'");
  }
}

void H5File::write_all(const std::string& name, DType dtype, std::span<const std::int64_t> extents,
                       std::span<const std::byte> data) {
  create_dataset(name, dtype, extents);
  write(name, dtype, 0, extents.empty() ? 1 : extents[0], data);
}

void H5File::close() {
  h5::Session session;
  impl_->opened.clear();
  if (!impl_->file) return;
  if (impl_->writable && H5Fflush(impl_->file.get(), H5F_SCOPE_GLOBAL) < 0) impl_->fail("flushing");
  if (H5Fclose(impl_->file.release()) < 0) impl_->fail("closing");
}

}  // namespace renai
