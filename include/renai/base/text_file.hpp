#pragma once
// Texts that a user names on the command line: recipes and models.

#include <filesystem>
#include <string>

namespace renai {

/// Whole text of a regular file of at most 16 MiB. Pipes and devices are refused: they may never end, and every rank
/// reads the file. Errors: as require_named_file() and fail_reading(); UserError for what is no such text.
std::string read_named_text(const std::string& failed, const std::filesystem::path& path, const std::string& remedy);

}  // namespace renai
