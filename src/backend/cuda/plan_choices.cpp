#include "plan_choices.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "renai/base/digest.hpp"
#include "renai/base/text.hpp"

namespace renai::cuda {

std::optional<std::string> PlanChoices::find(const std::string& operation) const {
  const auto found = choices_.find(operation);
  if (found == choices_.end()) return std::nullopt;
  return found->second;
}

std::string PlanChoices::text() const {
  std::string text;
  for (const auto& [operation, choice] : choices_) text += operation + "\t" + choice + "\n";
  return text;
}

void PlanChoices::merge(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return;
    const std::string_view line = text.substr(0, end);
    const std::size_t tab = line.find('\t');
    if (tab != std::string_view::npos && tab > 0 && tab + 1 < line.size()) {
      choices_[std::string(line.substr(0, tab))] = std::string(line.substr(tab + 1));
    }
    text.remove_prefix(end + 1);
  }
}

PlanCacheFile::PlanCacheFile(std::string directory, const std::string& identity) : identity_(identity) {
  if (!directory.empty()) path_ = std::move(directory) + "/plans-" + hex64(hash64(identity)) + ".txt";
}

std::string PlanCacheFile::read() const {
  if (path_.empty()) return {};
  std::ifstream file(path_);
  std::string first;
  if (!std::getline(file, first) || first != identity_) return {};
  std::ostringstream rest;
  rest << file.rdbuf();
  return rest.str();
}

std::string PlanCacheFile::write(std::string_view text) const {
  if (path_.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  const std::string draft = path_ + "." + std::to_string(::getpid());
  std::string failure;
  {
    std::ofstream file(draft, std::ios::trunc);
    file << identity_ << '\n' << text;
    if (!file.flush()) failure = "cannot write " + draft;
  }
  if (failure.empty()) {
    std::filesystem::rename(draft, path_, error);
    if (error) failure = "cannot rename " + draft + ": " + error.message();
  }
  if (!failure.empty()) std::filesystem::remove(draft, error);
  return failure;
}

}  // namespace renai::cuda
