#pragma once
// Where a dataset's bytes lie, and whether they can be had: the library reads what is not there as fill values.

#include <cstdint>
#include <vector>

#include "h5_support.hpp"

namespace renai::h5 {

/// Whether the dataset lies in the opened file itself, not behind a link to another one.
bool lies_in(hid_t file, hid_t dataset);

/// Errors: DataError naming the filter that is missing here, or the file with (part of) the dataset's bytes that is not
/// there or too short.
void require_readable(hid_t dataset, hid_t creation, const std::filesystem::path& path, const std::string& name);

/// Access to a dataset of these extents with room for two rows of its chunks, or one where two have over `most_bytes`;
/// empty where the library's own cache is enough, or even one has more.
Properties chunk_access(hid_t dataset, const std::vector<hsize_t>& extents, std::int64_t most_bytes);

/// Where a link that leads nowhere would lead, such as "/a of b.h5"; empty for no link, and for one that leads
/// somewhere.
std::string find_broken_link(hid_t file, const std::string& name);

}  // namespace renai::h5
