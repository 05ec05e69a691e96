#include "library.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <thread>

#include "renai/base/error.hpp"

namespace renai::nccl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kRemedy = "see what the library says with NCCL_DEBUG=INFO in the environment";

/// Waits while the communicator is busy, `limit` at most: a short spin, then sleeps of up to 200 us.
template <typename Look>
ncclResult_t await(ncclComm_t comm, ncclResult_t status, std::chrono::milliseconds limit, const Look& look) {
  const auto begin = Clock::now();
  std::chrono::microseconds sleep{10};
  for (int round = 0; status == ncclInProgress && Clock::now() - begin < limit; ++round) {
    if (round >= 64) {
      if (round % 64 == 0) look();
      std::this_thread::sleep_for(sleep);
      sleep = std::min(sleep * 2, std::chrono::microseconds{200});
    }
    ncclResult_t state = ncclInProgress;
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    status = asked == ncclSuccess ? state : asked;
  }
  return status;
}

ncclUniqueId share_id(ControlGroup& control) {
  ncclUniqueId id{};
  std::string bytes;
  if (control.rank() == 0) {
    check_nccl(ncclGetUniqueId(&id), "making NCCL's unique id");
    bytes.assign(id.internal, sizeof id.internal);
  }
  bytes = control.broadcast(bytes, 0, "sharing NCCL's unique id");
  if (bytes.size() != sizeof id.internal) {
    throw PeerError("NCCL cannot start", "rank 0 uses another version of it", "install the same NCCL on all hosts");
  }
  std::memcpy(id.internal, bytes.data(), sizeof id.internal);
  return id;
}

}  // namespace

void check_nccl(ncclResult_t status, const char* what, std::source_location where) {
  if (status == ncclSuccess || status == ncclInProgress) return;
  throw BackendError(std::string(what) + " failed", ncclGetErrorString(status), kRemedy, where);
}

Library::Library(ControlGroup& control, std::chrono::milliseconds watchdog) : control_(&control), watchdog_(watchdog) {
  // Multicast over NVLink brings nothing to exchanges in pairs and fails where the fabric is not set up for it.
  ::setenv("NCCL_NVLS_ENABLE", "0", 0);
  start(share_id(control));
}

void Library::start(const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t status = ncclCommInitRankConfig(&comm_, control_->world_size(), id, control_->rank(), &config);
  if (comm_ == nullptr) check_nccl(status, "starting NCCL");
  finish(status, "starting NCCL");  // When it throws, the communicator is left as it is.
}

Library::~Library() {
  if (comm_ == nullptr || failed_ || std::uncaught_exceptions() > 0) return;
  if (await(comm_, ncclCommFinalize(comm_), watchdog_, [] {}) == ncclSuccess) ncclCommDestroy(comm_);
}

void Library::finish(ncclResult_t status, std::string_view stage) {
  // A call may return success before its work in the background has begun: the communicator's own state counts.
  if (status == ncclSuccess) status = ncclInProgress;
  try {
    status = await(comm_, status, watchdog_, [this] { control_->poll(); });
  } catch (...) {
    failed_ = true;  // A peer is gone: the call that it takes part in may never end.
    throw;
  }
  if (status != ncclSuccess) fail(status, stage);
}

void Library::poll() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  if (asked != ncclSuccess) state = asked;
  if (state != ncclSuccess && state != ncclInProgress) fail(state, "running");
}

void Library::fail(ncclResult_t status, std::string_view stage) {
  failed_ = true;
  if (status == ncclInProgress) {
    throw PeerError("NCCL did not finish " + std::string(stage),
                    "other ranks did not take part within " + std::to_string(watchdog_.count() / 1000) + " s",
                    "look at the other ranks' messages, or raise --watchdog-seconds");
  }
  const std::string why = std::string(ncclGetErrorString(status)) + ": " + ncclGetLastError(comm_);
  if (status == ncclRemoteError || status == ncclSystemError) {
    throw PeerError("NCCL failed while " + std::string(stage), why, kRemedy);
  }
  throw BackendError("NCCL failed while " + std::string(stage), why, kRemedy);
}

}  // namespace renai::nccl
