#include "sync_norm.hpp"

#include "renai/base/check.hpp"

namespace renai::sync_norm {
namespace {

/// add(a, b, level) merges what block b holds into block a, level by level of the tree; the blocks of a level stand for
/// 2^level shards.
template <typename Add>
void add_tree(const Blocks& blocks, const Add& add) {
  int level = 0;
  for (int half = 1; half < blocks.shards; half *= 2, ++level) {
    for (int shard = 0; shard + half < blocks.shards; shard += 2 * half) {
      add(blocks.data + 2 * blocks.c * shard, blocks.data + 2 * blocks.c * (shard + half), level);
    }
  }
}

}  // namespace

Blocks make_blocks(const BindContext& context, std::byte* memory, std::int64_t c, int shards) {
  RENAI_CHECK(context.communicator != nullptr && context.communicator->world_size() == shards,
              "statistics of " + std::to_string(shards) + " shards need a rank for each");
  return {reinterpret_cast<double*>(memory), c, shards, context.communicator->rank()};
}

void gather(const BindContext& context, const Blocks& blocks, Stream& stream, const std::string& node) {
  context.communicator->all_gather(reinterpret_cast<std::byte*>(blocks.data), block_bytes(blocks.c), stream,
                                   "statistics of '" + node + "'");
}

void add_sums(const Blocks& blocks, std::int64_t begin, std::int64_t end) {
  add_tree(blocks, [&](double* a, const double* b, int) {
    for (std::int64_t ch = begin; ch < end; ++ch) {
      a[ch] += b[ch];
      a[blocks.c + ch] += b[blocks.c + ch];
    }
  });
}

void add_moments(const Blocks& blocks, double rows, std::int64_t begin, std::int64_t end) {
  add_tree(blocks, [&](double* a, const double* b, int level) {
    const double half_count = rows * static_cast<double>(1 << level) / 2;
    for (std::int64_t ch = begin; ch < end; ++ch) {
      const double distance = b[ch] - a[ch];
      a[blocks.c + ch] += b[blocks.c + ch] + distance * distance * half_count;
      a[ch] += distance / 2;
    }
  });
}

}  // namespace renai::sync_norm
