#pragma once
// HDF5 through RAII: what shards and checkpoints need. No HDF5 type appears here.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "renai/tensor/dtype.hpp"

namespace renai {

/// What a dataset holds, and where.
struct H5DatasetInfo {
  std::vector<std::int64_t> extents;
  DType dtype = DType::f32;
  bool convertible = true;  ///< An integer or float type that the library converts to `dtype`.
  bool contiguous = false;  ///< Raw bytes lie in the file at file_offset, in native order, unfiltered.
  std::int64_t file_offset = -1;
};

/// An open HDF5 file. Safe to use from several threads (calls are serialised). Works where file locking does not.
class H5File {
 public:
  /// Errors: DataError naming the file and the reason (missing, not HDF5, truncated); ResourceError for permissions or
  /// disk.
  static H5File open(const std::filesystem::path& path);
  /// A new file in the place of one that is there. Errors: ResourceError.
  static H5File create(const std::filesystem::path& path);
  /// An existing file, to add datasets and attributes. Change a copy and rename it, never a file in use.
  static H5File modify(const std::filesystem::path& path);
  H5File(H5File&&) noexcept;
  H5File& operator=(H5File&&) noexcept;
  ~H5File();

  bool exists(const std::string& name) const;
  /// Where a link that leads nowhere would lead; empty for anything else.
  std::string broken_link(const std::string& name) const;
  bool is_group(const std::string& name) const;
  /// Names in a group, in the order of names.
  std::vector<std::string> children(const std::string& group) const;
  /// Errors: DataError for a dataset that cannot be read here: a filter is missing, or a file that holds its bytes.
  H5DatasetInfo info(const std::string& dataset) const;
  /// The most bytes that the dataset can hold by what the file stores of it, whatever its filters and however many of
  /// its chunks were never written: damaged extents must not ask for all memory. No bound where the bytes lie in other
  /// files.
  std::int64_t most_bytes(const std::string& dataset) const;
  /// Reads rows [first, first + count) of axis 0, converted to `dtype`, into `out` (exact size).
  void read(const std::string& dataset, DType dtype, std::int64_t first, std::int64_t count,
            std::span<std::byte> out) const;
  /// For reading a dataset in order, by rows: keeps the chunks of up to two rows of chunks, decompressed, so that each
  /// is decompressed once. Where one row of chunks has over `most_bytes`, nothing more is kept than usually.
  void keep_chunks(const std::string& dataset, std::int64_t most_bytes) const;
  void create_group(const std::string& name);
  void create_dataset(const std::string& name, DType dtype, std::span<const std::int64_t> extents);
  /// Rows [first, first + count) of axis 0, from exactly as many bytes. Errors of every write: ResourceError.
  void write(const std::string& dataset, DType dtype, std::int64_t first, std::int64_t count,
             std::span<const std::byte> data);
  /// Creates a dataset and writes all of it.
  void write_all(const std::string& name, DType dtype, std::span<const std::int64_t> extents,
                 std::span<const std::byte> data);
  /// Nothing where there is no such attribute. `object`: a dataset or a group; empty: the file. Errors: DataError where
  /// it is of another kind.
  std::optional<std::string> string_attribute(const std::string& object, const std::string& name) const;
  std::optional<std::int64_t> int_attribute(const std::string& object, const std::string& name) const;
  void set_attribute(const std::string& object, const std::string& name, const std::string& value);
  void set_attribute(const std::string& object, const std::string& name, std::int64_t value);
  /// Flushes and closes. Errors: ResourceError (disk full ...).
  void close();

  struct Impl;  ///< Known to the sources of this room only.

 private:
  explicit H5File(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace renai
