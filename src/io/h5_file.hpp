#pragma once
// What an open HDF5 file owns; shared by the sources that implement H5File.

#include <map>

#include "h5_support.hpp"
#include "renai/io/hdf5.hpp"

namespace renai {

struct H5File::Impl {
  std::filesystem::path path;
  h5::File file;
  bool writable = false;
  bool broken = false;                        ///< A write failed.
  std::map<std::string, h5::DataSet> opened;  ///< Kept open: the library's chunk cache belongs to an open dataset.

  ~Impl();
  /// The dataset's id, opened on first use. Errors: DataError when there is none.
  hid_t dataset(const std::string& name);
  /// Marks the file broken. Errors: ResourceError with the library's reason.
  [[noreturn]] void fail(const std::string& what);
};

}  // namespace renai
