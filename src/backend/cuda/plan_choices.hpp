#pragma once
// Which library engine runs which operation: chosen on one rank, shared with the others, kept on disk.

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace renai::cuda {

/// Operation -> choice, both as text ("conv fwd bf16 n256 ...", "3 17:2=1,6=2"). Sorted, so that its text is the same
/// wherever it was made.
class PlanChoices {
 public:
  std::optional<std::string> find(const std::string& operation) const;
  void set(const std::string& operation, std::string choice) { choices_[operation] = std::move(choice); }
  std::string text() const;  ///< One "operation\tchoice" a line.
  /// Adds the lines of `text`; those that cannot be read are left out, so a damaged file costs time, not the run.
  void merge(std::string_view text);

 private:
  std::map<std::string, std::string> choices_;
};

/// The file of one (device, library versions, search mode) under `directory`; without a directory nothing is kept.
class PlanCacheFile {
 public:
  PlanCacheFile(std::string directory, const std::string& identity);
  /// Nothing when the file is missing or was made for something else.
  std::string read() const;
  /// Atomic; a failure is not one of the run: it returns the reason and leaves no file behind.
  std::string write(std::string_view text) const;

 private:
  std::string path_, identity_;
};

}  // namespace renai::cuda
