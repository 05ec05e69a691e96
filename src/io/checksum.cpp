#include "renai/io/checksum.hpp"

#include <xxhash.h>

#include <new>

#include "renai/base/handle.hpp"

namespace renai {
namespace {

struct FreeState {
  void operator()(XXH3_state_t* state) const noexcept { XXH3_freeState(state); }
};

}  // namespace

struct Checksum128::State {
  Handle<XXH3_state_t*, FreeState, nullptr> xxh{XXH3_createState()};
};

Checksum128::Checksum128() : state_(std::make_unique<State>()) {
  if (!state_->xxh || XXH3_128bits_reset(state_->xxh.get()) != XXH_OK) throw std::bad_alloc();
}
Checksum128::Checksum128(Checksum128&&) noexcept = default;
Checksum128& Checksum128::operator=(Checksum128&&) noexcept = default;
Checksum128::~Checksum128() = default;

void Checksum128::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh.get(), bytes.data(), bytes.size());
}

Digest128 Checksum128::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh.get());
  return {hash.low64, hash.high64};
}

}  // namespace renai
