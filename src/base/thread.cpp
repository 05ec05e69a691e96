#include "renai/base/thread.hpp"

#include <system_error>

#include "renai/base/error.hpp"

namespace renai {

std::thread start_thread(const std::string& what, const std::string& option, std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw ResourceError("starting " + what, error.code().message(),
                        (option.empty() ? "start fewer ranks" : "lower " + option) +
                            ", or raise the limits of processes and memory (ulimit -u, ulimit -v, those of the "
                            "container)");
  }
}

void ThreadGroup::start(const std::string& what, const std::string& option, std::function<void()> body) {
  threads_.emplace_back();  // Where there is no memory for it, no thread runs yet.
  threads_.back() = start_thread(what, option, std::move(body));
}

void ThreadGroup::join() noexcept {
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  threads_.clear();
}

void ThreadGroup::end() noexcept {
  stop_();
  join();
}

}  // namespace renai
