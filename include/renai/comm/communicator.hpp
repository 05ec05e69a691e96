#pragma once
// Communicator: the collectives of a training step, recorded into streams. Leaves: self, mpi, nccl.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "renai/device/device.hpp"

namespace renai {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual std::string name() const = 0;  ///< "self", "mpi (Open MPI 4.1.4)"

  /// Names memory that the collectives' values and scratch lie in. Where a collective fails and leaves a message behind
  /// that nobody can call back, the transport may still touch this memory: it then stays until the process ends,
  /// whatever its owners do. As long as nothing fails it is theirs alone.
  virtual void use_memory(const std::weak_ptr<const void>& /*memory*/) {}

  /// Scratch that tree_reduce needs for `elems` values. Units: bytes.
  virtual std::int64_t tree_reduce_scratch_bytes(std::int64_t elems) const = 0;
  /// values[i] becomes the sum over ranks, added as one balanced binary tree in rank order, on every rank: rank r's
  /// values are the subtree over its consecutive shards, so the sum is the tree over all V leaves. Runs on `stream`, or
  /// is recorded there. Determinism: the same bits for any chunking, host grouping and transport. Errors (at run time):
  /// PeerError with `stage`.
  virtual void tree_reduce(float* values, std::int64_t elems, std::byte* scratch, Stream& stream,
                           std::string stage) = 0;
  /// Every rank's block of `block_bytes` (own at rank * block_bytes) on every rank.
  virtual void all_gather(std::byte* blocks, std::int64_t block_bytes, Stream& stream, std::string stage) = 0;
};

/// Pairwise sum of `count` (a power of two) vectors in tree order into `out`: ((v0+v1)+(v2+v3))+... The definition that
/// every leaf obeys.
void tree_sum(const float* const* vectors, int count, std::int64_t elems, float* out);

}  // namespace renai
