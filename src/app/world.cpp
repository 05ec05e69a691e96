#include "world.hpp"

#include <sched.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "renai/base/error.hpp"
#include "renai/device/host.hpp"

namespace renai {
namespace {

/// How long a rank that has waited too long listens for the others' answers. Ranks see the same exchange fail at about
/// the same time.
constexpr std::chrono::milliseconds kRollCall{2000};

const char* first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) return value;
  }
  return nullptr;
}

std::unique_ptr<Backend> make_host_backend(const Recipe& recipe, const Log& log) {
  if (recipe.device == "reference") return make_reference_backend();
  if (recipe.device == "cpu") return make_cpu_backend(recipe.threads);
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

/// All ranks come to the same answer. Errors: BackendError when a GPU was asked for and a rank has none.
bool World::use_gpu(const Recipe& recipe) {
  if (recipe.device != "auto" && recipe.device != "cuda") return false;
  gpus_ = find_cuda_gpus();
  const std::string reason = no_gpu_reason(*control_, gpus_);
  if (reason.empty()) return true;
  if (recipe.device == "cuda") {
    throw BackendError("--device cuda", reason, "use --device cpu, or a machine with a GPU and its driver");
  }
  log_.info("no GPU (" + reason + "): the CPU is used");
  return false;
}

CudaBackendOptions World::cuda_options(const Recipe& recipe) const {
  CudaBackendOptions options;
  options.precision = precision_of(recipe);
  options.kernel_search = recipe.kernel_search;
  options.plan_cache_dir = plan_cache_folder(recipe.plan_cache);
  options.log = &log_;
  return options;
}

std::unique_ptr<Communicator> World::make_another_communicator(ReduceMode reduce, int pieces) {
  if (world_size() == 1) return make_self_communicator();
  if (gpus_.gpus.empty()) return mpi_->make_communicator(watchdog_, topology_.ranks_per_host);
  NcclOptions options;
  options.reduce = reduce;
  options.watchdog = watchdog_;
  options.pieces = pieces;
  return make_nccl_communicator(*control_, options);
}

void World::choose_gpu_leaves(const Recipe& recipe) {
  const CudaGpu& gpu = choose_gpu(gpus_, mpi_ ? mpi_->local_rank() : 0);
  RankPlace own;
  own.rank = control_->rank();
  own.host = host_name();
  own.device = gpu.model;
  own.uuid = gpu.uuid;
  own.numa_node = gpu.numa_node;
  own.pid = ::getpid();
  topology_ = gather_topology(*control_, own);
  if (!recipe.allow_shared_gpu) refuse_shared_gpus(topology_);
  // Before anything is allocated: pinned memory and the threads made from here on lie near the GPU.
  bind_near(gpu.numa_node, 1 + recipe.loader_threads, log_);

  CudaDeviceOptions options;
  options.ordinal = gpu.ordinal;
  if (world_size() > 1) {
    roll_call_ = mpi_->make_control_group(kRollCall);
    watch_ = std::make_unique<PeerWatch>(*control_, *roll_call_, watchdog_);
    options.while_waiting = [watch = watch_.get()](std::chrono::milliseconds waited) { watch->look(waited); };
  }
  device_ = make_cuda_device(options);
  CudaBackendOptions backend_options = cuda_options(recipe);
  backend_options.control = control_.get();
  backend_ = make_cuda_backend(backend_options);
  if (world_size() == 1) {
    communicator_ = make_self_communicator();
    return;
  }
  NcclOptions nccl;
  nccl.reduce = recipe.reduce == "fast" ? ReduceMode::fast : ReduceMode::tree;
  nccl.watchdog = watchdog_;
  nccl.shared_gpu = recipe.allow_shared_gpu;
  auto communicator = make_nccl_communicator(*control_, nccl);
  watch_->watch(communicator.get());
  communicator_ = std::move(communicator);
}

void World::choose_host_leaves(const Recipe& recipe) {
  if (recipe.reduce == "fast") {
    throw UserError("--reduce fast", "only GPUs have a library that reduces otherwise than by the tree",
                    "use --reduce tree, or --device cuda");
  }
  gpus_ = {};
  warn_of_pinning(recipe, log_);
  device_ = make_host_device();
  backend_ = make_host_backend(recipe, log_);
  const DeviceInfo info = device_->info();
  RankPlace own;
  own.rank = control_->rank();
  own.host = host_name();
  own.device = info.model;
  own.numa_node = info.numa_node;
  own.pid = ::getpid();
  topology_ = gather_topology(*control_, own);
  communicator_ = mpi_ ? mpi_->make_communicator(watchdog_, topology_.ranks_per_host) : make_self_communicator();
}

bool runs_uncaptured() {
  const char* value = std::getenv("RENAI_UNCAPTURED");
  return value != nullptr && *value == '1';
}

Run World::choose(const Recipe& recipe) {
  if (use_gpu(recipe)) {
    choose_gpu_leaves(recipe);
  } else {
    choose_host_leaves(recipe);
  }
  if (const Support support = backend_->supports(precision_of(recipe)); !support) {
    throw UserError("--precision " + recipe.precision + " with --device " + backend_->name(), support.reason(),
                    "use --precision fp32");
  }
  Run run{device_.get(), backend_.get(), communicator_.get(), control_.get()};
  if (runs_uncaptured()) {
    run.capture = false;
    log_.info("RENAI_UNCAPTURED=1: graphs stay uncaptured, every launch enqueues its kernels one by one");
  }
  return run;
}

/// True when a rank below this one has reported the same mistake: it says so for all. Reports arrive only while
/// somebody looks, so this looks a few times.
bool World::told_by_lower_rank(const Error& error) {
  constexpr int kLooks = 20;
  for (int look = 0; rank() > 0 && look < kLooks; ++look) {
    try {
      control_->poll();
    } catch (const PeerError& peer) {
      const std::string_view text = peer.what();
      constexpr std::string_view kStart = "rank ";
      int teller = rank();
      if (text.starts_with(kStart)) std::from_chars(text.data() + kStart.size(), text.data() + text.size(), teller);
      return teller < rank() && text.find(error.what()) != std::string_view::npos;
    } catch (const Error&) {
      return false;  // What goes wrong with asking is not what this rank has to tell.
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

int World::fail(const Error& error) {
  const bool peer = error.kind() == ErrorKind::peer;
  if (!peer) control_->report_failure(error);
  // The rank where the failure began speaks first and its exit code is the job's; equal mistakes on all ranks are said
  // once.
  using std::chrono::milliseconds;
  if (mpi_) std::this_thread::sleep_for(milliseconds((peer ? 1500 : 0) + (rank() > 0 ? 300 + 50 * (rank() % 8) : 0)));
  if (mpi_ && !peer && told_by_lower_rank(error)) {
    std::this_thread::sleep_for(milliseconds(2000));  // That rank ends the job.
    mpi_->abort(error.exit_code());
  }
  std::fprintf(stderr, "renai: rank %d on %s: %s\n", rank(), host_name().c_str(), error.what());
  std::fflush(stderr);
  if (mpi_) mpi_->abort(error.exit_code());
  return error.exit_code();
}

}  // namespace renai
