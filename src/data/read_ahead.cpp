#include "renai/data/read_ahead.hpp"

#include <algorithm>
#include <system_error>

#include "renai/base/check.hpp"
#include "renai/base/error.hpp"

namespace renai {

ReadAhead::ReadAhead(const Dataset& dataset, const Sampler& sampler) : dataset_(&dataset), sampler_(&sampler) {
  const SplitInfo* split = dataset.manifest().find("train");
  RENAI_CHECK(split != nullptr, "block order is of a training split");
  shards_ = split->shards;
  std::erase_if(shards_, [](const ShardInfo& shard) { return shard.samples == 0; });
}

/// Of this window and the next one, which may be the next epoch's first.
FileSet ReadAhead::files_from(std::int64_t epoch, std::int64_t window) const {
  Manifest chosen;
  chosen.splits.push_back({"train", {}});
  const auto add = [&](const BlockOrder& order, std::int64_t number) {
    for (const std::size_t block : order.blocks_of(number)) chosen.splits[0].shards.push_back(shards_[block]);
  };
  const auto order = sampler_->block_order(epoch);
  add(*order, window);
  if (window + 1 < order->windows()) {
    add(*order, window + 1);
  } else {
    add(*sampler_->block_order(epoch + 1), 0);
  }
  FileSet files;
  files.add(dataset_->directory(), chosen, "train");
  return files;
}

void ReadAhead::at(std::int64_t epoch, std::int64_t batch) {
  const std::int64_t position = sampler_->first_position(batch);
  const std::int64_t window = sampler_->block_order(epoch)->window_of(position);
  if (epoch == epoch_ && window == window_) return;
  epoch_ = epoch;
  window_ = window;
  filler_.reset();  // Whatever it has not read is read by those who need it.
  try {
    filler_ = std::make_unique<CacheFiller>(files_from(epoch, window), 0, 1);
  } catch (const Error&) {
    // A shard that is gone, or that the system will not give now: the loader names it when it reads, with patience.
  } catch (const std::system_error&) {
    // No thread to be had: samples are read as they are asked for.
  }
}

}  // namespace renai
