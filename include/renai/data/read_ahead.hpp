#pragma once
// Reading ahead of block order: whole shards, from their begin to their end, before their samples are asked for.

#include <cstdint>
#include <memory>

#include "renai/data/dataset.hpp"
#include "renai/data/page_cache.hpp"
#include "renai/data/sampler.hpp"

namespace renai {

/// Brings the shards of the window being shown and of the next one into the page cache, in order, on a thread of its
/// own. Slow disks then read long runs while samples are taken from memory. Changes nothing but speed; a file that
/// cannot be read is left to the reading that needs it.
class ReadAhead {
 public:
  /// `sampler` must outlive this and have block order.
  ReadAhead(const Dataset& dataset, const Sampler& sampler);
  /// The training is at this batch. Cheap unless a window begins.
  void at(std::int64_t epoch, std::int64_t batch);
  /// Of the files of this window and the next one, so far.
  std::int64_t read_bytes() const { return filler_ ? filler_->read_bytes() : 0; }

 private:
  FileSet files_from(std::int64_t epoch, std::int64_t window) const;

  const Dataset* dataset_;
  const Sampler* sampler_;
  std::vector<ShardInfo> shards_;  ///< Those with samples, as the sampler's blocks.
  std::int64_t epoch_ = -1, window_ = -1;
  std::unique_ptr<CacheFiller> filler_;
};

}  // namespace renai
