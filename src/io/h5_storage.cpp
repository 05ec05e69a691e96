#include "h5_storage.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <vector>

#include "renai/base/error.hpp"

namespace renai::h5 {
namespace fs = std::filesystem;
namespace {

std::string file_name_of(hid_t object) {
  const ssize_t length = H5Fget_name(object, nullptr, 0);
  if (length <= 0) return {};
  std::string name(static_cast<std::size_t>(length), '\0');
  H5Fget_name(object, name.data(), name.size() + 1);
  return name;
}

[[noreturn]] void fail_elsewhere(const fs::path& path, const std::string& name, const std::string& why) {
  throw DataError("dataset '" + name + "' of " + path.string(), why,
                  "put that file where it was when the dataset was made, or copy the data into the file itself");
}

/// Filters by which the chunks were written.
void require_filters(hid_t creation, const fs::path& path, const std::string& name) {
  for (int i = 0; i < H5Pget_nfilters(creation); ++i) {
    std::array<char, 256> text{};
    std::size_t values = 0;
    unsigned flags = 0, config = 0;
    const H5Z_filter_t filter = H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &values, nullptr,
                                               text.size() - 1, text.data(), &config);
    if (filter < 0 || H5Zfilter_avail(filter) > 0) continue;
    throw DataError("dataset '" + name + "' of " + path.string(),
                    "it was written with the filter '" + std::string(text.data()) + "' (number " +
                        std::to_string(filter) + "), which the HDF5 library here does not have",
                    "write it again with gzip or uncompressed, or name the folder of the filter's plugin in "
                    "HDF5_PLUGIN_PATH");
  }
}

/// As the library looks for the file of a virtual dataset's part: beside the file that names it, else from here.
std::vector<fs::path> places_of_source(const fs::path& path, const fs::path& source) {
  const fs::path folder = path.parent_path();
  if (source.is_absolute()) return {source, folder / source.filename()};
  return {folder / source, source};
}

bool has_dataset(const fs::path& file, const std::string& dataset) {
  const Properties access = file_access();
  const File opened = own<File>(H5Fopen(file.c_str(), H5F_ACC_RDONLY, access.get()));
  return opened && own<DataSet>(H5Dopen2(opened.get(), dataset.c_str(), H5P_DEFAULT));
}

template <typename Get>
std::string text_of(Get get) {
  const ssize_t length = get(nullptr, 0);
  if (length <= 0) return {};
  std::string text(static_cast<std::size_t>(length), '\0');
  get(text.data(), text.size() + 1);
  return text;
}

/// Of a virtual dataset. Parts named by a pattern are as many as there are.
void require_sources(hid_t dataset, hid_t creation, const fs::path& path, const std::string& name) {
  std::size_t count = 0;
  if (std::getenv("HDF5_VDS_PREFIX") != nullptr || H5Pget_virtual_count(creation, &count) < 0) return;
  const std::string own_name = file_name_of(dataset);
  std::set<std::pair<std::string, std::string>> seen;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string file =
        text_of([&](char* to, std::size_t size) { return H5Pget_virtual_filename(creation, i, to, size); });
    const std::string inner =
        text_of([&](char* to, std::size_t size) { return H5Pget_virtual_dsetname(creation, i, to, size); });
    const bool pattern = file.find('%') != std::string::npos || inner.find('%') != std::string::npos;
    if (pattern || !seen.emplace(file, inner).second) continue;
    const std::vector<fs::path> places =
        file == "." ? std::vector<fs::path>{own_name} : places_of_source(own_name, file);
    if (std::any_of(places.begin(), places.end(), [&](const fs::path& place) { return has_dataset(place, inner); })) {
      continue;
    }
    fail_elsewhere(path, name, "a part of it is '" + inner + "' of " + file + ", which is not there");
  }
}

/// Of a dataset whose bytes are those of other files, which the library looks for from the working directory.
void require_external_files(hid_t creation, const fs::path& path, const std::string& name) {
  if (std::getenv("HDF5_EXTFILE_PREFIX") != nullptr) return;
  for (int i = 0; i < H5Pget_external_count(creation); ++i) {
    std::array<char, 4096> file{};
    off_t offset = 0;
    hsize_t size = 0;
    if (H5Pget_external(creation, static_cast<unsigned>(i), file.size() - 1, file.data(), &offset, &size) < 0) continue;
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(file.data(), error);
    if (error) {
      fail_elsewhere(path, name, "its bytes are those of " + std::string(file.data()) + ": " + error.message());
    }
    const auto begin = static_cast<std::uintmax_t>(offset);
    if (size == H5F_UNLIMITED || (bytes >= begin && bytes - begin >= size)) continue;
    fail_elsewhere(path, name,
                   "its bytes are " + std::to_string(size) + " of " + std::string(file.data()) + " from byte " +
                       std::to_string(begin) + " on, which has " + std::to_string(bytes) + " (truncated?)");
  }
}

}  // namespace

bool lies_in(hid_t file, hid_t dataset) { return file_name_of(file) == file_name_of(dataset); }

void require_readable(hid_t dataset, hid_t creation, const fs::path& path, const std::string& name) {
  require_filters(creation, path, name);
  if (H5Pget_layout(creation) == H5D_VIRTUAL) require_sources(dataset, creation, path, name);
  require_external_files(creation, path, name);
  H5Eclear2(H5E_DEFAULT);
}

Properties chunk_access(hid_t dataset, const std::vector<hsize_t>& extents, std::int64_t most_bytes) {
  constexpr double kUsualBytes = 1 << 20;  // What the library keeps unasked.
  constexpr double kMostChunks = 1 << 20, kSlots = 8;
  const Properties creation = own<Properties>(H5Dget_create_plist(dataset));
  const Type type = own<Type>(H5Dget_type(dataset));
  if (!creation || !type || extents.empty() || H5Pget_layout(creation.get()) != H5D_CHUNKED) return {};
  std::vector<hsize_t> chunk(extents.size());
  if (H5Pget_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data()) < 0) return {};
  // In floating point: extents of a damaged file may overflow.
  double row_bytes = static_cast<double>(H5Tget_size(type.get())), chunks = 1;
  for (std::size_t axis = 0; axis < chunk.size(); ++axis) {
    row_bytes *= static_cast<double>(chunk[axis]);
    if (axis > 0) chunks *= std::ceil(static_cast<double>(extents[axis]) / static_cast<double>(chunk[axis]));
  }
  row_bytes *= chunks;
  const double most = static_cast<double>(most_bytes);
  if (!(2 * row_bytes > kUsualBytes) || row_bytes > most || chunks > kMostChunks) return {};
  Properties access = own<Properties>(H5Pcreate(H5P_DATASET_ACCESS));
  // Many slots, for two chunks of one slot push each other out. Chunks that were read to their end go first.
  const auto slots = static_cast<std::size_t>(2 * chunks * kSlots) + 1;
  H5Pset_chunk_cache(access.get(), slots, static_cast<std::size_t>(std::min(2 * row_bytes, most)), 1.0);
  return access;
}

std::string find_broken_link(hid_t file, const std::string& name) {
  std::string target;
  H5L_info_t info{};
  const bool link = !name.empty() && H5Lget_info(file, name.c_str(), &info, H5P_DEFAULT) >= 0 &&
                    (info.type == H5L_TYPE_SOFT || info.type == H5L_TYPE_EXTERNAL) &&
                    H5Oexists_by_name(file, name.c_str(), H5P_DEFAULT) <= 0;
  if (link) {
    std::vector<char> value(info.u.val_size + 1, '\0');
    H5Lget_val(file, name.c_str(), value.data(), info.u.val_size, H5P_DEFAULT);
    const char *other = nullptr, *object = nullptr;
    unsigned flags = 0;
    target = value.data();
    if (info.type == H5L_TYPE_EXTERNAL) {
      const bool known = H5Lunpack_elink_val(value.data(), info.u.val_size, &flags, &other, &object) >= 0;
      target = known ? std::string(object) + " of " + other : "another file";
    }
  }
  H5Eclear2(H5E_DEFAULT);
  return target;
}

}  // namespace renai::h5
