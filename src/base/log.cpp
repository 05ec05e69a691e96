#include "renai/base/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace renai {

struct Log::Sink {
  spdlog::logger logger;
  Sink(const std::string& prefix, spdlog::level::level_enum level)
      : logger("renai", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger.set_pattern("renai: " + prefix + "%v");
    logger.set_level(level);
    logger.flush_on(spdlog::level::trace);
  }
};

Log::Log(int rank, LogLevel threshold) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                   spdlog::level::err};
  if (rank > 0 && threshold < LogLevel::warning) threshold = LogLevel::warning;
  sink_ = std::make_unique<Sink>(rank > 0 ? "rank " + std::to_string(rank) + ": " : std::string{},
                                 kLevels[static_cast<int>(threshold)]);
}

Log::~Log() = default;
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;

void Log::debug(const std::string& message) const { sink_->logger.debug(message); }
void Log::info(const std::string& message) const { sink_->logger.info(message); }
void Log::warning(const std::string& message) const { sink_->logger.warn("warning: " + message); }
void Log::error(const std::string& message) const { sink_->logger.error(message); }

}  // namespace renai
