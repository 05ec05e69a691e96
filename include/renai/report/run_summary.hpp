#pragma once
// What a run directory holds, as text.

#include <filesystem>
#include <string>

namespace renai {

/// True for a directory written by `renai train`.
bool is_run_directory(const std::filesystem::path& directory);

/// Status, figures, validations and checkpoints of a run; the raw summary.json when `json`.
/// Errors: DataError naming a file that is missing or not JSON.
std::string summarize_run(const std::filesystem::path& directory, bool json);

}  // namespace renai
