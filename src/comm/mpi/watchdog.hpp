#pragma once
// Watchdog: a limit for the calls of MPI that have none: they wait for every rank for ever.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace renai::mpi {

class Watchdog {
 public:
  /// Unless the object goes within `limit`, the process prints one PeerError, "rank R did not get through `call`", and
  /// ends with its exit code; the launcher then ends the other ranks. Lower ranks speak first, so that one rank tells
  /// of a failure that all ranks see. Effects: a thread.
  Watchdog(std::string call, int rank, std::chrono::milliseconds limit);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch(std::chrono::milliseconds limit, std::chrono::milliseconds turn);
  [[noreturn]] void end_process(std::chrono::milliseconds limit) const noexcept;

  std::string call_;
  int rank_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;  // Last: it starts when all other members stand.
};

}  // namespace renai::mpi
