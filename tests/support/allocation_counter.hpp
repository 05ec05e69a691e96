#pragma once
// Counts every operator new of the program, to prove that a steady state allocates nothing. Included by one source of a
// test program: it replaces the global operators.

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace renai::test {

/// Calls of operator new so far, by all threads.
inline std::atomic<long> allocations{0};

inline void* counted(std::size_t size, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* data = alignment <= alignof(std::max_align_t)
                   ? std::malloc(size)
                   : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace renai::test

// The compiler sees free() where operator delete was inlined, and takes the replaced pair for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(std::size_t size) { return renai::test::counted(size, 1); }
void* operator new[](std::size_t size) { return renai::test::counted(size, 1); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  renai::test::allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  renai::test::allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return renai::test::counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }
