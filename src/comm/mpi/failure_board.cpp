#include <algorithm>
#include <array>
#include <thread>

#include "link.hpp"

namespace renai::mpi {
namespace {

constexpr int kFailureTag = 1;
/// Short enough that every transport takes it at once, without the receiver's help.
constexpr std::size_t kMaxReportBytes = 2000;
constexpr std::chrono::milliseconds kReportLimit{500};

}  // namespace

FailureBoard::FailureBoard(MPI_Comm comm, int rank, int world_size, std::string host)
    : comm_(comm), rank_(rank), world_size_(world_size), host_(std::move(host)) {}

void FailureBoard::raise() const { throw PeerError(failed_, why_, "see that rank's own message"); }

void FailureBoard::check() {
  if (peer_failed()) raise();
  if (world_size_ == 1) return;
  {
    // Another thread of this rank that holds the lock is looking already.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock() && !peer_failed()) receive();
  }
  if (peer_failed()) raise();
}

/// Takes every report that is here and keeps the lowest rank's: equal mistakes are that rank's to tell.
void FailureBoard::receive() {
  int source = world_size_;
  std::string kept;
  for (int looks = 0; looks < world_size_; ++looks) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status{};
    check_mpi(MPI_Improbe(MPI_ANY_SOURCE, kFailureTag, comm_, &found, &message, &status), "MPI_Improbe");
    if (found == 0) break;
    std::array<char, kMaxReportBytes> text{};
    int size = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &size), "MPI_Get_count");
    // Probed: the message is here, so this receive does not wait for the sender.
    check_mpi(MPI_Mrecv(text.data(), static_cast<int>(text.size()), MPI_BYTE, &message, &status), "MPI_Mrecv");
    if (status.MPI_SOURCE >= source) continue;
    source = status.MPI_SOURCE;
    kept.assign(text.data(), static_cast<std::size_t>(size));
  }
  if (source == world_size_) return;
  const auto split = std::min(kept.find('\n'), kept.size());
  failed_ = "rank " + std::to_string(source) + " on " + kept.substr(0, split) +
            " failed: " + kept.substr(std::min(split + 1, kept.size()));
  peer_failed_.store(true, std::memory_order_release);
}

void FailureBoard::post(const Error& error) noexcept {
  if (peer_failed() || world_size_ == 1 || posted_.exchange(true)) return;
  try {
    std::string text = host_ + "\n" + error.what();
    text.resize(std::min(text.size(), kMaxReportBytes));
    send_to_all(std::move(text));
  } catch (...) {
    // Best effort: peers that hear nothing find out by their own deadlines.
  }
}

void FailureBoard::send_to_all(std::string text) {
  // Both outlive this call where a send does not complete in time: the library may still read them.
  auto report = std::make_unique<std::string>(std::move(text));
  auto requests = std::make_unique<std::vector<MPI_Request>>();
  requests->reserve(static_cast<std::size_t>(world_size_));
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(report->data(), static_cast<int>(report->size()), MPI_BYTE, peer, kFailureTag, comm_, &request) ==
        MPI_SUCCESS) {
      requests->push_back(request);
    }
  }
  const auto end = Clock::now() + kReportLimit;
  int done = 0;
  while (done == 0 && Clock::now() < end) {
    if (MPI_Testall(static_cast<int>(requests->size()), requests->data(), &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
      break;
    if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (done == 0) {
    static_cast<void>(report.release());
    static_cast<void>(requests.release());
  }
}

}  // namespace renai::mpi
