#include "batch_reader.hpp"

#include <algorithm>
#include <tuple>

namespace renai {
namespace {

/// Bytes between samples that are read and thrown away rather than asking twice: copying them from the page cache takes
/// about as long as a system call, reading them from a device less than one more request.
constexpr std::int64_t kCachedGap = std::int64_t{8} << 10, kDirectGap = std::int64_t{64} << 10;
constexpr std::size_t kMostKept = std::size_t{4} << 20;

void grow(std::vector<std::byte>& buffer, std::size_t size) {
  if (buffer.size() < size) buffer.resize(size);
}

void count(std::atomic<std::int64_t>& counter, std::int64_t more) {
  counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

}  // namespace

BatchReader::BatchReader(std::size_t rows) {
  pieces_.reserve(rows);
  found_.reserve(rows);
}

void BatchReader::begin(const Dataset& dataset, std::span<const std::int64_t> samples, std::span<std::byte> rows) {
  dataset_ = &dataset;
  samples_at_ = samples;
  rows_ = rows;
  found_.assign(samples.size(), -1);
  pieces_.clear();
  for (std::size_t row = 0; row < samples.size(); ++row) {
    if (samples[row] < 0) continue;
    const Dataset::Place place = dataset.place(samples[row]);
    if (place.shard >= 0) pieces_.push_back({place, row});
  }
  if (pieces_.size() < 2) return;
  if (dataset.encoded()) {
    read_close();
  } else {
    read_neighbours();
  }
}

std::span<std::byte> BatchReader::row_bytes(std::size_t row, std::size_t count) const {
  const auto size = static_cast<std::size_t>(dataset_->sample_bytes());
  return rows_.subspan(row * size, count * size);
}

/// Rows that follow each other and whose samples do in a shard.
void BatchReader::read_neighbours() {
  for (std::size_t first = 0; first < pieces_.size();) {
    std::size_t end = first + 1;
    while (end < pieces_.size() && pieces_[end].row == pieces_[end - 1].row + 1 &&
           pieces_[end].place.shard == pieces_[first].place.shard &&
           pieces_[end].place.at == pieces_[end - 1].place.at + pieces_[end - 1].place.size_bytes) {
      ++end;
    }
    if (end - first > 1) {
      const Piece& piece = pieces_[first];
      count(reads_, 1);
      if (dataset_->try_read(piece.place.shard, piece.place.at, row_bytes(piece.row, end - first))) {
        for (std::size_t i = first; i < end; ++i) found_[pieces_[i].row] = 0;
      }
    }
    first = end;
  }
}

void BatchReader::read_close() {
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.place.shard, a.place.at, a.row) < std::tie(b.place.shard, b.place.at, b.row);
  });
  kept_bytes_ = 0;
  for (std::size_t first = 0; first < pieces_.size();) first = keep_run(first);
}

/// Reads the pieces from `first` on that are close to each other, if they are several. Returns the piece after them.
std::size_t BatchReader::keep_run(std::size_t first) {
  const std::int64_t gap = dataset_->reads_direct() ? kDirectGap : kCachedGap;
  const Dataset::Place& begin = pieces_[first].place;
  std::int64_t end_at = begin.at + begin.size_bytes;
  std::size_t end = first + 1;
  for (; end < pieces_.size(); ++end) {
    const Dataset::Place& next = pieces_[end].place;
    const std::int64_t new_end = std::max(end_at, next.at + next.size_bytes);
    if (next.shard != begin.shard || next.at - end_at > gap) break;
    if (kept_bytes_ + static_cast<std::size_t>(new_end - begin.at) > kMostKept) break;
    end_at = new_end;
  }
  if (end - first < 2) return end;
  const auto size = static_cast<std::size_t>(end_at - begin.at);
  grow(kept_, kept_bytes_ + size);
  count(reads_, 1);
  if (dataset_->try_read(begin.shard, begin.at, std::span(kept_).subspan(kept_bytes_, size))) {
    for (std::size_t i = first; i < end; ++i) {
      found_[pieces_[i].row] = static_cast<std::int64_t>(kept_bytes_) + pieces_[i].place.at - begin.at;
    }
    kept_bytes_ += size;
  }
  return end;
}

std::span<const std::byte> BatchReader::get(std::size_t row) {
  const std::int64_t sample = samples_at_[row];
  const auto size = static_cast<std::size_t>(dataset_->stored_bytes(sample));
  const bool encoded = dataset_->encoded();
  const std::int64_t found = found_[row];
  count(samples_, 1);
  if (found >= 0) {
    const std::span<const std::byte> bytes =
        encoded ? std::span(kept_).subspan(static_cast<std::size_t>(found), size) : row_bytes(row, 1);
    dataset_->check(sample, bytes);
    return bytes;
  }
  if (encoded) grow(single_, size);
  const std::span<std::byte> bytes = encoded ? std::span(single_).first(size) : row_bytes(row, 1);
  count(reads_, 1);
  dataset_->read(sample, bytes);
  return bytes;
}

}  // namespace renai
