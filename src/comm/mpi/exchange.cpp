#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <thread>

#include "link.hpp"
#include "renai/base/check.hpp"
#include "renai/comm/ranks.hpp"

namespace renai::mpi {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// How long a wait polls before it sleeps: a base, and the time that the bytes take at a gigabyte a second, because
/// large messages move only while somebody polls.
constexpr microseconds kSpinBase{40};
constexpr std::int64_t kSpinBytesPerMicrosecond = 1000;
constexpr microseconds kSpinMost{20'000};
constexpr microseconds kSleepLeast{20}, kSleepMost{200};
/// A process that was stopped finds its deadline passed and its messages unread: it reads for this long first.
constexpr milliseconds kLastLook{50};

/// Sleeps that get longer, with the system's timer slack (50 us by default) cut for the calling thread.
class BackOff {
 public:
  explicit BackOff(std::int64_t bytes)
      : spin_end_(Clock::now() + std::min(kSpinMost, kSpinBase + microseconds(bytes / kSpinBytesPerMicrosecond))) {}
  void pause() {
    if (Clock::now() < spin_end_) {
      sched_yield();
      return;
    }
    thread_local const int slack = prctl(PR_SET_TIMERSLACK, 5000, 0, 0, 0);
    static_cast<void>(slack);
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(kSleepMost, sleep_ * 3 / 2);
  }

 private:
  Clock::time_point spin_end_;
  microseconds sleep_ = kSleepLeast;
};

}  // namespace

/// Whether the library may still touch the memory of the message.
bool Exchange::give_up(std::size_t message) noexcept {
  MPI_Request& request = requests_[message];
  if (request == MPI_REQUEST_NULL) return false;
  if (receives_[message] != 0) MPI_Cancel(&request);
  // A cancelled receive completes at once, unless its message is half here: that one may never end. Nor may a send.
  int flag = 0;
  for (int look = 0; look < 100 && flag == 0; ++look) {
    if (MPI_Test(&request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
  }
  if (request == MPI_REQUEST_NULL) return false;
  MPI_Request_free(&request);
  return true;
}

void Exchange::abandon() noexcept {
  bool open = false;
  for (std::size_t i = 0; i < requests_.size(); ++i) open |= give_up(i);
  if (open) {
    for (auto& memory : held_) keep_for_ever(std::move(memory));
    link_->keep_used_memory();
  }
  clear();
}

void Exchange::clear() noexcept {
  requests_.clear();
  peers_.clear();
  receives_.clear();
  held_.clear();
  bytes_ = 0;
}

void Exchange::reserve(std::size_t messages) {
  requests_.reserve(messages);
  peers_.reserve(messages);
  receives_.reserve(messages);
}

void Exchange::start(void* data, std::int64_t size_bytes, int peer, int tag, MPI_Comm comm, bool receive) {
  RENAI_CHECK(size_bytes >= 0 && size_bytes <= (std::int64_t{1} << 30), "a message is larger than MPI's counts");
  requests_.push_back(MPI_REQUEST_NULL);
  peers_.push_back(peer);
  receives_.push_back(receive ? 1 : 0);
  bytes_ += size_bytes;
  const int count = static_cast<int>(size_bytes);
  MPI_Request& request = requests_.back();
  const int code = receive ? MPI_Irecv(data, count, MPI_BYTE, peer, tag, comm, &request)
                           : MPI_Isend(data, count, MPI_BYTE, peer, tag, comm, &request);
  if (code != MPI_SUCCESS) abandon();
  check_mpi(code, receive ? "MPI_Irecv" : "MPI_Isend");
}

void Exchange::send(const void* data, std::int64_t size_bytes, int peer, int tag, MPI_Comm comm) {
  start(const_cast<void*>(data), size_bytes, peer, tag, comm, false);
}

void Exchange::receive(void* data, std::int64_t size_bytes, int peer, int tag, MPI_Comm comm) {
  start(data, size_bytes, peer, tag, comm, true);
}

bool Exchange::done() {
  int flag = 0;
  check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &flag, MPI_STATUSES_IGNORE),
            "MPI_Testall");
  return flag != 0;
}

std::vector<int> Exchange::missing_ranks() {
  std::vector<int> silent, unread;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    int flag = 0;
    check_mpi(MPI_Test(&requests_[i], &flag, MPI_STATUS_IGNORE), "MPI_Test");
    if (flag == 0) (receives_[i] != 0 ? silent : unread).push_back(peers_[i]);
  }
  // Where everything has arrived, the ranks that do not take this rank's data are the ones that hang.
  std::vector<int>& ranks = silent.empty() ? unread : silent;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void Exchange::finish(milliseconds limit, std::string_view stage) {
  try {
    wait_for_all(limit, stage);
  } catch (...) {
    // Not left to the destructor: the memory of the messages may go before this object does.
    abandon();
    throw;
  }
  clear();
}

void Exchange::wait_for_all(milliseconds limit, std::string_view stage) {
  auto end = Clock::now() + limit;
  bool last_look = false;
  BackOff back_off(bytes_);
  for (std::uint32_t look = 0; !done(); ++look) {
    if (look % 8 == 0) link_->board->check();
    const auto now = Clock::now();
    if (now >= end && !last_look) {
      last_look = true;
      end = now + kLastLook;
    } else if (now >= end) {
      const auto ranks = missing_ranks();
      if (ranks.empty()) break;
      throw PeerError("nothing came from " + name_ranks(ranks) + " while " + std::string(stage),
                      "waited " + describe_limit(limit),
                      "look at the messages and the host of that rank; if it was only slow, raise --watchdog-seconds");
    }
    back_off.pause();
  }
}

}  // namespace renai::mpi
