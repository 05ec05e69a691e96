#pragma once
// Atomic replacement of files: temporary file in the same directory, flush to disk, rename, flush the directory.

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace renai {

/// Calls `write(temporary)` and moves the result to `path`; on any exception the temporary file is removed and `path`
/// is as before. Errors: ResourceError naming the path and the system's reason.
void replace_file(const std::filesystem::path& path, const std::function<void(const std::filesystem::path&)>& write);
/// The same for a text.
void replace_text(const std::filesystem::path& path, std::string_view text);
/// Whether the name is one that replace_file() gives to a file at work, as a killed program leaves it.
bool is_temporary(const std::filesystem::path& path);
/// Removes such files from a folder, where `own` accepts the name of the file that they were to become. One that cannot
/// be removed costs space, nothing else. Nobody else may be writing there.
void remove_temporaries(const std::filesystem::path& folder, const std::function<bool(const std::string& name)>& own);
/// Whole file as text. Errors: DataError when it is missing; ResourceError when the system will not read it.
std::string read_text(const std::filesystem::path& path);
/// Creates a directory and its parents and checks that it can be written. Errors: ResourceError.
void require_writable_directory(const std::filesystem::path& path);

}  // namespace renai
