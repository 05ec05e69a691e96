#pragma once
// Which error a file that cannot be used is. One rule for everything that reads files: what was named on the command
// line and is not there is a UserError (exit 2), what belongs to a set or a run and is missing or damaged is a
// DataError (3), what is there but the system will not give is a ResourceError (4). What cannot be written is a
// ResourceError, and what to do about it depends on the system's reason alone.

#include <filesystem>
#include <string>

namespace renai {

/// Fails for the system's error number `error`, with which opening or reading a file ended. Errors: DataError where it
/// says that there is no such file, ResourceError for permissions, disks, networks, limits and memory.
[[noreturn]] void fail_reading(const std::string& failed, int error);

/// The same for writing a file or making one. `more` follows what to do where the disk or a quota is full.
/// Errors: ResourceError.
[[noreturn]] void fail_writing(const std::string& failed, int error, const std::string& more = {});
/// What to do about the system's error number `error` where nobody knows whether a file was read or written.
std::string file_remedy(int error);

/// What the command line names. Errors: UserError "failed; there is no such file; remedy", or that it is a folder,
/// a pipe or a device; ResourceError where the system will not say.
void require_named_file(const std::string& failed, const std::filesystem::path& path, const std::string& remedy);
/// The same of a file or a folder.
void require_named(const std::string& failed, const std::filesystem::path& path, const std::string& remedy);
/// The same of a folder.
void require_named_folder(const std::string& failed, const std::filesystem::path& path, const std::string& remedy);

}  // namespace renai
