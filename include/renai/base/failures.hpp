#pragma once
// Failures: errors of files that are looked at one after the other, told together.

#include <string>
#include <vector>

#include "renai/base/error.hpp"

namespace renai {

/// Collects what was found damaged (DataError) and what the system would not give (ResourceError), so that one such
/// file does not keep the others from being looked at.
class Failures {
 public:
  /// Calls `look`, and keeps its DataError or ResourceError.
  template <typename Look>
  void collect(const Look& look) {
    ++looked_;
    try {
      look();
    } catch (const DataError& error) {
      errors_.push_back(error);
    } catch (const ResourceError& error) {
      errors_.push_back(error);
    }
  }
  /// Returns where nothing failed. Errors: the only one as it is; several as one that names them all, of the `things`
  /// that were looked at: DataError where any is damaged, ResourceError where all only could not be read.
  void raise(const std::string& failed, const std::string& things) const;

 private:
  std::vector<Error> errors_;
  std::size_t looked_ = 0;
};

}  // namespace renai
