#pragma once
// Batch norm over the shards of all ranks: what each shard knows of a channel, gathered and added in tree order.
//
// A shard's block holds two values of each channel, [2][c] f64: mean and sum of squared deviations forward, sums of g
// and of g * (x - mean), or of g * xhat, backward. Blocks of all shards lie one after the other, in rank order.

#include <cstdint>
#include <string>

#include "renai/backend/backend.hpp"

namespace renai::sync_norm {

constexpr std::int64_t block_bytes(std::int64_t c) { return 2 * c * static_cast<std::int64_t>(sizeof(double)); }

/// Blocks of all shards. Shard and rank are the same.
struct Blocks {
  double* data = nullptr;
  std::int64_t c = 0;
  int shards = 1, own = 0;

  double* of_own() const { return data + 2 * c * own; }
  std::int64_t size_bytes() const { return shards * block_bytes(c); }
};
/// `memory`: shards * block_bytes(c) in the arena.
Blocks make_blocks(const BindContext& context, std::byte* memory, std::int64_t c, int shards);

/// Every rank's block on every rank, recorded into `stream`. Errors (at run time): PeerError naming the node.
void gather(const BindContext& context, const Blocks& blocks, Stream& stream, const std::string& node);

/// The first block becomes the sum over all shards, for channels [begin, end). Determinism: one balanced tree over the
/// shards in fp64; the other blocks are overwritten.
void add_sums(const Blocks& blocks, std::int64_t begin, std::int64_t end);
/// Likewise mean and sum of squared deviations of all rows, each shard having `rows` of them. Source: Chan, Golub and
/// LeVeque 1979.
void add_moments(const Blocks& blocks, double rows, std::int64_t begin, std::int64_t end);

}  // namespace renai::sync_norm
