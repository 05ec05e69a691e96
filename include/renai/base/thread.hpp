#pragma once
// Starting threads on a system that may have none left: limits of processes, of memory, of a container.

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace renai {

/// A thread that runs `body`, which does not throw. Errors: ResourceError "starting `what`; the system's reason; ..."
/// with what to do: to lower `option`, where one says how many threads there are, and to raise limits.
std::thread start_thread(const std::string& what, const std::string& option, std::function<void()> body);

/// Threads that end together, also where one of them cannot be started. As a member it stands last: its threads end
/// before what they use goes, and where the constructor that starts them throws, too.
class ThreadGroup {
 public:
  /// `stop` makes all bodies return soon; it does not throw and may be called more than once.
  explicit ThreadGroup(std::function<void()> stop) : stop_(std::move(stop)) {}
  ~ThreadGroup() { end(); }
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  /// As start_thread(). After an error the threads before it still run.
  void start(const std::string& what, const std::string& option, std::function<void()> body);
  /// Waits until all have returned by themselves.
  void join() noexcept;
  /// Stops all and waits for them.
  void end() noexcept;

 private:
  std::function<void()> stop_;
  std::vector<std::thread> threads_;
};

}  // namespace renai
