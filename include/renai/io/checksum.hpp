#pragma once
// Checksum128: XXH3-128 of a stream of bytes, for contents that do not fit in memory at once.

#include <cstddef>
#include <memory>
#include <span>

#include "renai/base/digest.hpp"

namespace renai {

/// Digest of all bytes given to update(), in order; equal to hash128() of their concatenation. Source: xxHash.
class Checksum128 {
 public:
  Checksum128();
  Checksum128(Checksum128&&) noexcept;
  Checksum128& operator=(Checksum128&&) noexcept;
  ~Checksum128();

  void update(std::span<const std::byte> bytes);
  /// Of the bytes so far; more may follow.
  Digest128 digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace renai
