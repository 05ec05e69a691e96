#pragma once
// Link: what all objects of the mpi leaf share: communicators of their own, the failure board, waiting with a deadline.

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "renai/base/error.hpp"
#include "renai/base/host.hpp"

namespace renai::mpi {

using Clock = std::chrono::steady_clock;

/// Throws BackendError naming the call unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

/// "Open MPI 4.1.4": the first words of what the library says of itself.
std::string library_name();
/// Calls visit(from, size) for the messages that a block is cut into. Units: bytes.
template <typename Visit>
void cut_block(std::int64_t size_bytes, std::int64_t most_bytes, const Visit& visit) {
  for (std::int64_t from = 0; from < size_bytes; from += most_bytes) {
    visit(from, std::min(most_bytes, size_bytes - from));
  }
}
/// "3 s", "700 ms".
std::string describe_limit(std::chrono::milliseconds limit);

/// Where a peer's failure arrives: any wait looks at it, so a failed rank ends everybody's waits at once.
class FailureBoard {
 public:
  FailureBoard(MPI_Comm comm, int rank, int world_size, std::string host);

  /// Throws PeerError when a peer has reported a failure. Cheap, any thread.
  void check();
  /// Tells all peers, unless this rank has told them already or itself ends because a peer told it.
  /// Effects: best effort within half a second; never throws.
  void post(const Error& error) noexcept;
  bool peer_failed() const noexcept { return peer_failed_.load(std::memory_order_acquire); }
  bool failed() const noexcept { return peer_failed() || posted_.load(std::memory_order_acquire); }

 private:
  void receive();
  [[noreturn]] void raise() const;
  void send_to_all(std::string text);

  MPI_Comm comm_;
  int rank_, world_size_;
  std::string host_;
  std::atomic<bool> posted_{false}, peer_failed_{false};
  mutable std::mutex mutex_;
  std::string failed_, why_;  ///< Of the first report; written before peer_failed_ is set.
};

/// Shared by the session, its control groups and communicators. Uses duplicates of MPI_COMM_WORLD, made before any
/// other thread calls MPI: messages of the three kinds never meet.
struct Link {
  Link();
  /// Frees the communicators. Effects: collective; only for an orderly end.
  void release();
  /// Memory of the collectives' messages. It belongs to its owners, unless a message is given up.
  void use_memory(const std::weak_ptr<const void>& memory);
  /// A message was given up that the library may still read or write: what use_memory named stays from now on.
  void keep_used_memory();

  MPI_Comm control = MPI_COMM_NULL, data = MPI_COMM_NULL, failures = MPI_COMM_NULL;
  int rank = 0, world_size = 1;
  int local_rank = 0, local_size = 1;  ///< Among the ranks that share this host's memory.
  std::unique_ptr<FailureBoard> board;
  /// Number of the next control group or communicator: ranks make them in the same order, so tags agree.
  std::atomic<int> next_control{0}, next_data{0};

 private:
  std::mutex used_mutex_;
  std::vector<std::weak_ptr<const void>> used_;
};

/// Keeps memory until the process ends: a message that was given up may still touch it, and nobody can say when not.
void keep_for_ever(std::shared_ptr<const void> memory);

/// Tag of message kind `kind` (0..15) of the object with number `instance`.
int tag_of(int instance, int kind);

/// A set of messages that are started together and waited for together. Capacity is kept between uses.
/// Messages are given up when one cannot be started, when a wait fails and when the object goes: receives are
/// cancelled, sends left to the library. Where one is still open then, the memory of `hold` and of Link::use_memory is
/// kept for ever.
class Exchange {
 public:
  explicit Exchange(std::shared_ptr<Link> link) : link_(std::move(link)) {}
  ~Exchange() { abandon(); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void reserve(std::size_t messages);
  /// Memory of messages that lives as long as they do, at least.
  void hold(std::shared_ptr<const void> memory) { held_.push_back(std::move(memory)); }
  void send(const void* data, std::int64_t size_bytes, int peer, int tag, MPI_Comm comm);
  void receive(void* data, std::int64_t size_bytes, int peer, int tag, MPI_Comm comm);
  /// Waits for all messages: a short spin, longer the more bytes are on the way, then sleeps of 20 to 200 us.
  /// Errors: PeerError naming the ranks whose messages are missing, `stage` and the limit; a peer's reported failure.
  void finish(std::chrono::milliseconds limit, std::string_view stage);

 private:
  bool done();
  void wait_for_all(std::chrono::milliseconds limit, std::string_view stage);
  bool give_up(std::size_t message) noexcept;
  void abandon() noexcept;
  void clear() noexcept;
  std::vector<int> missing_ranks();
  void start(void* data, std::int64_t size_bytes, int peer, int tag, MPI_Comm comm, bool receive);

  std::shared_ptr<Link> link_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
  std::vector<char> receives_;
  std::vector<std::shared_ptr<const void>> held_;
  std::int64_t bytes_ = 0;
};

}  // namespace renai::mpi
