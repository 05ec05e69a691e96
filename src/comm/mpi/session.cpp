// MpiSession: MPI's start and orderly end.

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <thread>

#include "communicator.hpp"
#include "control.hpp"
#include "link.hpp"
#include "renai/base/check.hpp"
#include "renai/comm/mpi.hpp"
#include "watchdog.hpp"

namespace renai {
namespace mpi {
namespace {

/// A rank that ends because a peer failed gives that peer this long to end the job with its own exit code.
constexpr std::chrono::milliseconds kPeerEndsFirst{1000};
constexpr std::chrono::milliseconds kDefaultDeadline{60'000};
/// Ranks start one after the other and load libraries first, which is no silence yet.
constexpr std::chrono::milliseconds kStartGrace{1000};

class Session final : public MpiSession {
 public:
  explicit Session(bool owns_mpi) : link_(std::make_shared<Link>()), owns_mpi_(owns_mpi) {}

  ~Session() override {
    // MPI's own end waits for every rank without a limit: only for runs that end well everywhere.
    if (std::uncaught_exceptions() > 0 || link_->board->failed()) return;
    if (owns_mpi_) say_goodbye();
    std::optional<Watchdog> watchdog;
    try {
      watchdog.emplace("MPI_Finalize", link_->rank, longest_deadline_.value_or(kDefaultDeadline));
    } catch (const Error&) {
      // No thread to be had: without a limit then. The run itself has ended well.
    }
    link_->release();
    if (owns_mpi_) MPI_Finalize();
  }

  int rank() const override { return link_->rank; }
  int world_size() const override { return link_->world_size; }
  int local_rank() const override { return link_->local_rank; }
  int local_size() const override { return link_->local_size; }
  std::string library() const override { return library_name(); }

  [[noreturn]] void abort(int exit_code) noexcept override {
    if (link_->board->peer_failed()) std::this_thread::sleep_for(kPeerEndsFirst);
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    _exit(exit_code);
  }

  std::unique_ptr<ControlGroup> make_control_group(std::chrono::milliseconds deadline) override {
    longest_deadline_ = std::max(longest_deadline_.value_or(deadline), deadline);
    return mpi::make_control_group(link_, deadline);
  }

  std::unique_ptr<Communicator> make_communicator(std::chrono::milliseconds deadline, int ranks_per_host) override {
    return mpi::make_communicator(link_, deadline, ranks_per_host);
  }

 private:
  /// Meets all ranks a last time, with a deadline that names the silent ones, which MPI_Finalize has not.
  void say_goodbye() noexcept {
    try {
      mpi::make_control_group(link_, longest_deadline_.value_or(kDefaultDeadline))->barrier("ending the run");
    } catch (const Error& error) {
      std::fprintf(stderr, "renai: rank %d: %s\n", link_->rank, error.what());
      abort(error.exit_code());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "renai: rank %d: %s\n", link_->rank, error.what());
      abort(static_cast<int>(ErrorKind::internal));
    }
  }

  std::shared_ptr<Link> link_;
  bool owns_mpi_;
  std::optional<std::chrono::milliseconds> longest_deadline_;
};

}  // namespace
}  // namespace mpi

std::unique_ptr<MpiSession> start_mpi(std::chrono::milliseconds watchdog_limit, int launcher_rank) {
  const mpi::Watchdog watchdog("MPI_Init", launcher_rank, watchdog_limit + mpi::kStartGrace);
  int initialized = 0, provided = MPI_THREAD_SINGLE;
  mpi::check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
  if (initialized != 0) {
    mpi::check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  } else {
    // Open MPI's own waits (at start and end) spin; on a machine that is busy otherwise they must give the core away.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    mpi::check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    const std::string library = mpi::library_name();
    if (initialized == 0) MPI_Finalize();
    throw BackendError("MPI cannot be used", library + " lacks MPI_THREAD_MULTIPLE",
                       "use an MPI library built with full thread support");
  }
  return std::make_unique<mpi::Session>(initialized == 0);
}

}  // namespace renai
