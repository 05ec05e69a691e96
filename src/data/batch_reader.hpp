#pragma once
// BatchReader: the samples of some rows, those that lie close together in a shard by one read.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "renai/data/dataset.hpp"

namespace renai {

/// One a thread; what it holds is scratch, kept so that the steady state allocates nothing. Determinism: bytes and
/// errors are those of Dataset::read(), whatever is read together.
class BatchReader {
 public:
  /// `rows`: of a call of begin(), at most.
  explicit BatchReader(std::size_t rows);
  /// Of raw sets: pixels of samples that follow each other go to `rows`, where each sample has a place; of encoded
  /// ones: bytes of close samples into memory of its own. -1: a row without sample. Never fails: what could not be had
  /// is left to get().
  void begin(const Dataset& dataset, std::span<const std::int64_t> samples, std::span<std::byte> rows);
  /// Bytes of the sample of a row, valid until the next call: pixels, in their place among `rows`, or an encoded image.
  /// Errors: those of Dataset::read().
  std::span<const std::byte> get(std::size_t row);
  ReadCounts counts() const { return {reads_, samples_}; }

 private:
  struct Piece {
    Dataset::Place place;
    std::size_t row = 0;
  };
  void read_neighbours();
  void read_close();
  std::size_t keep_run(std::size_t first);
  std::span<std::byte> row_bytes(std::size_t row, std::size_t count) const;

  const Dataset* dataset_ = nullptr;
  std::span<const std::int64_t> samples_at_;
  std::span<std::byte> rows_;
  std::vector<Piece> pieces_;        ///< In the order of their places.
  std::vector<std::int64_t> found_;  ///< By row: where its bytes stand in kept_ (raw: any number), -1: not read yet.
  std::vector<std::byte> kept_, single_;
  std::size_t kept_bytes_ = 0;
  std::atomic<std::int64_t> reads_{0}, samples_{0};  ///< Written by one thread.
};

}  // namespace renai
