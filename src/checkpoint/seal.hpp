#pragma once
// Seal: a digest of a file's bytes behind its last byte, so that damage is found before a library parses it.

#include <filesystem>

namespace renai {

enum class SealState { none, intact, broken };

/// Appends magic and 128-bit digest. HDF5 ignores bytes after its own end. Errors: ResourceError naming the file.
void append_seal(const std::filesystem::path& path);

/// Errors: DataError when the file is missing or unreadable.
SealState check_seal(const std::filesystem::path& path);

}  // namespace renai
