#pragma once
// Logging to standard error. A `Log` value is passed down; there is no global logger.

#include <memory>
#include <string>

namespace renai {

enum class LogLevel { debug, info, warning, error };

/// Writes lines "renai: ..." to standard error; ranks other than 0 write warnings and errors only, prefixed by rank.
class Log {
 public:
  /// Effects: none until the first message. `rank` < 0 means no rank is known yet.
  explicit Log(int rank = -1, LogLevel threshold = LogLevel::info);
  ~Log();
  Log(Log&&) noexcept;
  Log& operator=(Log&&) noexcept;

  void debug(const std::string& message) const;
  void info(const std::string& message) const;
  void warning(const std::string& message) const;
  void error(const std::string& message) const;

 private:
  struct Sink;
  std::unique_ptr<Sink> sink_;
};

}  // namespace renai
