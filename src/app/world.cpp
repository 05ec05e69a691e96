#include "world.hpp"

#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "renai/base/error.hpp"
#include "renai/device/host.hpp"

namespace renai {
namespace {

const char* first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) return value;
  }
  return nullptr;
}

std::unique_ptr<Backend> make_backend(const Recipe& recipe, const Log& log) {
  if (recipe.device == "reference") return make_reference_backend();
  if (recipe.device == "cpu") return make_cpu_backend(recipe.threads);
  if (recipe.device == "cuda") {
    throw BackendError("--device cuda", "this build has no CUDA backend", "use --device cpu");
  }
  try {
    return make_cpu_backend(recipe.threads);
  } catch (const BackendError& error) {
    log.warning("no cpu backend (" + error.why() + "): the slow reference backend is used");
    return make_reference_backend();
  }
}

/// A launcher that pins a rank to fewer cores than it has compute threads makes it slower, not wrong.
void warn_of_pinning(const Recipe& recipe, const Log& log) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0 || CPU_COUNT(&cores) >= recipe.threads) return;
  log.warning("this rank may use " + std::to_string(CPU_COUNT(&cores)) + " core(s) but has --threads " +
              std::to_string(recipe.threads) + ": start with mpirun --bind-to none, or lower --threads");
}

Precision parse_precision(const std::string& name) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
    if (precision_name(precision) == name) return precision;
  }
  throw UserError("--precision " + name, "unknown precision", "use fp32");
}

}  // namespace

bool started_by_launcher() {
  if (first_set({"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) != nullptr) return true;
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  if (tasks != nullptr && std::atoi(tasks) > 1) {
    throw UserError("srun started " + std::string(tasks) + " tasks", "they cannot find each other without PMIx",
                    "start with srun --mpi=pmix");
  }
  return false;
}

int launcher_rank() {
  const char* rank = first_set({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"});
  return rank != nullptr ? std::atoi(rank) : 0;
}

World::World(std::chrono::milliseconds watchdog) : watchdog_(watchdog) {
  if (started_by_launcher()) {
    mpi_ = start_mpi(watchdog, launcher_rank());
    control_ = mpi_->make_control_group(watchdog);
  } else {
    control_ = make_self_control_group();
  }
  log_ = Log(control_->rank());
}

World::~World() = default;

Run World::choose(const Recipe& recipe) {
  warn_of_pinning(recipe, log_);
  device_ = make_host_device();
  backend_ = make_backend(recipe, log_);
  if (const Support support = backend_->supports(parse_precision(recipe.precision)); !support) {
    throw UserError("--precision " + recipe.precision + " with --device " + backend_->name(), support.reason(),
                    "use --precision fp32");
  }
  RankPlace own;
  own.rank = control_->rank();
  own.host = host_name();
  own.device = device_->info().model;
  own.uuid = device_->info().uuid;
  own.numa_node = device_->info().numa_node;
  own.pid = ::getpid();
  topology_ = gather_topology(*control_, own);
  communicator_ = mpi_ ? mpi_->make_communicator(watchdog_, topology_.ranks_per_host) : make_self_communicator();
  return Run{device_.get(), backend_.get(), communicator_.get(), control_.get()};
}

int World::fail(const Error& error) {
  const bool peer = error.kind() == ErrorKind::peer;
  if (!peer) control_->report_failure(error);
  // The rank where the failure began speaks first and its exit code is the job's; equal mistakes on all ranks are said
  // once.
  using std::chrono::milliseconds;
  if (mpi_) std::this_thread::sleep_for(milliseconds((peer ? 1500 : 0) + (rank() > 0 ? 300 + 50 * (rank() % 8) : 0)));
  std::fprintf(stderr, "renai: rank %d on %s: %s\n", rank(), host_name().c_str(), error.what());
  std::fflush(stderr);
  if (mpi_) mpi_->abort(error.exit_code());
  return error.exit_code();
}

}  // namespace renai
