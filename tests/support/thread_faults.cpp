// A library for LD_PRELOAD: a system with few threads. MOST_THREADS=N: while N threads besides the first one run,
// pthread_create fails with EAGAIN, as at a limit of processes.

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace {

std::atomic<long> running{0};

struct Body {
  void* (*call)(void*);
  void* argument;
};

void* run(void* given) {
  const auto* body = static_cast<Body*>(given);
  const Body own = *body;
  delete body;
  void* result = own.call(own.argument);
  --running;
  return result;
}

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*call)(void*),
                              void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  const char* most = std::getenv("MOST_THREADS");
  if (most != nullptr && running >= std::atol(most)) return EAGAIN;
  ++running;
  const int error = create(thread, attributes, run, new Body{call, argument});
  if (error != 0) --running;
  return error;
}
