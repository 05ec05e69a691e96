#pragma once
// How shards are read: through the system's page cache, or past it.

#include <cstdint>
#include <string>

#include "renai/base/error.hpp"

namespace renai {

/// Values of --read-mode.
enum class ReadMode {
  automatic,  ///< `direct` for sets far larger than memory whose files can be read so, else `cached`.
  cached,     ///< Through the page cache, which holds what was read for later epochs and other programs.
  direct,     ///< Past it (O_DIRECT): a set larger than memory pushes nobody's pages out.
};
/// "auto", "cached", "direct".
std::string read_mode_name(ReadMode mode);
/// Errors: UserError with the nearest known name.
ReadMode parse_read_mode(const std::string& name);

/// What `automatic` means for files of so many bytes on a host with so much memory free (not above 0: not known). Never
/// `automatic`. Of a set of twice the memory at most half would be found in the cache again, less in random order.
ReadMode choose_read_mode(ReadMode asked, std::int64_t stored_bytes, std::int64_t available_bytes);

/// A file that cannot be read past the page cache: its file system refuses, or only the HDF5 library can read it.
class DirectReadRefused : public UserError {
 public:
  using UserError::UserError;
};

/// Opens files as asked: `open(mode)` with `cached` or `direct`. Where `automatic` chose direct reads and they are
/// refused, `warning` says why and the files are opened as cached ones. Errors: those of `open`.
template <typename Open>
auto open_as(ReadMode asked, std::int64_t stored_bytes, std::int64_t available_bytes, std::string& warning,
             Open&& open) {
  const ReadMode mode = choose_read_mode(asked, stored_bytes, available_bytes);
  if (mode == asked || mode == ReadMode::cached) return open(mode);
  try {
    return open(mode);
  } catch (const DirectReadRefused& refused) {
    warning = std::string("the data set is larger than memory but is read through the page cache: ") + refused.what();
    return open(ReadMode::cached);
  }
}

/// How often something was asked of the system, and what for.
struct ReadCounts {
  std::int64_t reads = 0, samples = 0;
};

}  // namespace renai
