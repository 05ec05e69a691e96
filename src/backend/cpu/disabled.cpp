// The twin of the cpu backend for builds without oneDNN.

#include "renai/backend/backend.hpp"
#include "renai/base/error.hpp"

namespace renai {

std::unique_ptr<Backend> make_cpu_backend(int) {
  throw BackendError("starting the cpu backend", "this build has no oneDNN",
                     "install libdnnl-dev and build again, or use the reference backend");
}

}  // namespace renai
