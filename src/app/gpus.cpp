#include "gpus.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "renai/base/check.hpp"
#include "renai/base/error.hpp"

namespace renai {

std::string no_gpu_reason(ControlGroup& control, const CudaGpus& own) {
  const auto reasons = control.all_gather(own.gpus.empty() ? own.reason : std::string(), "looking for GPUs");
  for (std::size_t rank = 0; rank < reasons.size(); ++rank) {
    if (reasons[rank].empty()) continue;
    return (reasons.size() > 1 ? "rank " + std::to_string(rank) + ": " : std::string()) + reasons[rank];
  }
  return {};
}

const CudaGpu& choose_gpu(const CudaGpus& gpus, int local_rank) {
  RENAI_CHECK(!gpus.gpus.empty() && local_rank >= 0, "a GPU is chosen where there are some");
  return gpus.gpus[static_cast<std::size_t>(local_rank) % gpus.gpus.size()];
}

void refuse_shared_gpus(const HostTopology& topology) {
  for (const RankPlace& first : topology.places) {
    for (const RankPlace& second : topology.places) {
      if (second.rank <= first.rank || second.uuid.empty() || second.uuid != first.uuid) continue;
      throw UserError("ranks " + std::to_string(first.rank) + " and " + std::to_string(second.rank) + " on " +
                          second.host + " have the same GPU",
                      second.device + ", " + second.uuid,
                      "start one rank per GPU, let CUDA_VISIBLE_DEVICES name more GPUs, or give --allow-shared-gpu");
    }
  }
}

std::vector<int> parse_core_list(const std::string& text) {
  std::vector<int> cores;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0, last = 0;
    char dash = 0;
    std::istringstream range(part);
    if (!(range >> first)) continue;
    if (!(range >> dash >> last)) last = first;
    for (int core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

void bind_near(int numa_node, int threads, const Log& log) {
  if (numa_node < 0) return;
  std::ifstream file("/sys/devices/system/node/node" + std::to_string(numa_node) + "/cpulist");
  std::string list;
  std::getline(file, list);
  cpu_set_t allowed, near;
  CPU_ZERO(&allowed);
  CPU_ZERO(&near);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (const int core : parse_core_list(list)) {
    if (core < CPU_SETSIZE && CPU_ISSET(core, &allowed)) CPU_SET(core, &near);
  }
  const int count = CPU_COUNT(&near);
  if (count == CPU_COUNT(&allowed)) return;
  if (count < threads) {
    log.warning("threads stay where they are: only " + std::to_string(count) +
                " of this rank's cores are near its GPU");
    return;
  }
  if (::sched_setaffinity(0, sizeof near, &near) != 0) log.warning("threads cannot be bound near the GPU");
}

std::string plan_cache_folder(const std::string& option) {
  if (option == "no") return {};
  if (!option.empty()) return option;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return std::string(cache) + "/renai";
  }
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? std::string(home) + "/.cache/renai" : std::string();
}

void PeerWatch::look(std::chrono::milliseconds waited) {
  control_->poll();
  if (communicator_ == nullptr) return;
  communicator_->poll();
  if (waited < watchdog_) return;
  const std::lock_guard lock(mutex_);
  if (!failure_) {
    try {
      call_roll(waited);
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  std::rethrow_exception(failure_);
}

void PeerWatch::call_roll(std::chrono::milliseconds waited) {
  control_->poll();
  const std::string seconds = std::to_string(static_cast<double>(waited.count()) / 1e3).substr(0, 6) + " s";
  // A silent rank ends this with its name.
  roll_call_->barrier("waiting for the GPUs' exchange, " + std::to_string(watchdog_.count() / 1000) + " s and more");
  throw PeerError("the GPUs' exchange does not end", "every rank answers, but this one has waited " + seconds,
                  "look at the GPUs' links (nvidia-smi topo -m, dmesg), or raise --watchdog-seconds");
}

}  // namespace renai
