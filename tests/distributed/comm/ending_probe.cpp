// One program per way in which a run ends; ending_test.sh checks mpirun's exit code. Usage: ending_probe CASE.
#include <mpi.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "../../support/leak_check_off.hpp"
#include "renai/comm/mpi.hpp"

namespace {

using std::chrono::milliseconds;

/// What an application does: the session outlives the work, errors are reported, the job ends at once.
int end_with_errors(renai::MpiSession& mpi, const std::string& what) {
  const auto control = mpi.make_control_group(milliseconds{what == "silent" ? 500 : 20'000});
  try {
    if (what == "fails" && mpi.rank() == 1) throw renai::DataError("cannot read", "truncated");
    if (what == "silent" && mpi.rank() == 1) std::raise(SIGSTOP);
    control->barrier("meeting");
    return 0;
  } catch (const renai::Error& error) {
    std::fprintf(stderr, "rank %d: %s\n", mpi.rank(), error.what());
    control->report_failure(error);
    mpi.abort(error.exit_code());
  }
  return 70;
}

bool stops_in_finalize = false;

/// As the launcher tells it: MPI is not up.
int launcher_rank() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank != nullptr ? std::atoi(rank) : 0;
}

}  // namespace

/// MPI's profiling interface: this definition goes before the library's own.
extern "C" int MPI_Finalize() {
  if (stops_in_finalize && launcher_rank() == 1) std::raise(SIGSTOP);
  return PMPI_Finalize();
}

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "unwinds") {
    try {
      const auto mpi = renai::start_mpi();
      const auto control = mpi->make_control_group(milliseconds{20'000});
      control->barrier("meeting");
      if (mpi->rank() == 0) throw renai::UserError("thrown past the session", "its end must not wait for rank 1");
      std::this_thread::sleep_for(std::chrono::seconds{60});
    } catch (const renai::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::_Exit(error.exit_code());
    }
  }
  if (what == "stops-at-start" && launcher_rank() == 1) std::raise(SIGSTOP);
  const auto mpi = renai::start_mpi(milliseconds{500}, launcher_rank());
  if (what == "stops-in-finalize") {
    stops_in_finalize = true;
    mpi->make_control_group(milliseconds{500})->barrier("meeting");
    return 0;
  }
  if (what == "stops-at-end") {
    mpi->make_control_group(milliseconds{500})->barrier("meeting");
    if (mpi->rank() == 1) std::raise(SIGSTOP);
    return 0;
  }
  return end_with_errors(*mpi, what);
}
