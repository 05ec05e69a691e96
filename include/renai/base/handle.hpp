#pragma once
// RAII for handles of C libraries through one template.

#include <utility>

namespace renai {

/// Owns a handle of type `T` released by `Release{}(handle)`; `Null` marks "owns nothing". Move-only; never throws.
template <typename T, typename Release, T Null = T{}>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) noexcept : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, Null)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      value_ = std::exchange(other.value_, Null);
    }
    return *this;
  }
  ~Handle() { reset(); }

  T get() const noexcept { return value_; }
  explicit operator bool() const noexcept { return value_ != Null; }
  T release() noexcept { return std::exchange(value_, Null); }
  void reset() noexcept {
    if (value_ != Null) Release{}(std::exchange(value_, Null));
  }

 private:
  T value_ = Null;
};

}  // namespace renai
