#include "watchdog.hpp"

#include <unistd.h>

#include <cstdio>
#include <exception>

#include "link.hpp"
#include "renai/base/thread.hpp"

namespace renai::mpi {
namespace {

using std::chrono::milliseconds;

/// After the limit: time for a process that was stopped itself to get through, then the turn of each rank. A launcher
/// takes more than a second from the first rank's end to the signal that ends the others.
constexpr milliseconds kLastLook{50}, kTurn{1450}, kTurnOfRank{50};

milliseconds turn_of(int rank) { return kLastLook + (rank > 0 ? kTurn + kTurnOfRank * (rank % 8) : milliseconds{0}); }

}  // namespace

Watchdog::Watchdog(std::string call, int rank, milliseconds limit)
    : call_(std::move(call)),
      rank_(rank),
      thread_(start_thread("the thread that guards " + call_, "", [this, limit] { watch(limit, turn_of(rank_)); })) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::watch(milliseconds limit, milliseconds turn) {
  std::unique_lock lock(mutex_);
  for (const milliseconds wait : {limit, turn}) {
    if (changed_.wait_for(lock, wait, [this] { return over_; })) return;
  }
  end_process(limit);
}

void Watchdog::end_process(milliseconds limit) const noexcept {
  try {
    const PeerError error(
        "did not get through " + call_ + " within the watchdog time",
        "another rank did not come along in " + describe_limit(limit) + ": it is stopped, gone or was never started",
        "look at the processes and the host of every rank; if they only start slowly, raise "
        "--watchdog-seconds");
    std::fprintf(stderr, "renai: rank %d on %s: rank %d %s\n", rank_, host_name().c_str(), rank_, error.what());
    std::fflush(stderr);
  } catch (const std::exception&) {
    // Without a message then: the exit code says what it is.
  }
  // Not MPI_Abort: MPI may not be up, and the call that hangs may hold its locks.
  _exit(static_cast<int>(ErrorKind::peer));
}

}  // namespace renai::mpi
