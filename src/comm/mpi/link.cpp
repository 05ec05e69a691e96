#include "link.hpp"

#include <array>

#include "renai/base/check.hpp"

namespace renai::mpi {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  throw BackendError(std::string(call) + " failed", std::string(text.data(), static_cast<std::size_t>(length)),
                     "look at the messages of the MPI library and of the other ranks");
}

std::string library_name() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "unknown MPI";
  std::string name(text.data(), static_cast<std::size_t>(length));
  name = name.substr(0, name.find_first_of(",\n"));
  const auto version = name.find(" v");
  if (version != std::string::npos) name.erase(version + 1, 1);
  return name;
}

int tag_of(int instance, int kind) {
  RENAI_CHECK(instance < 1024, "too many control groups or communicators in one process");
  return instance * 16 + kind;
}

std::string describe_limit(std::chrono::milliseconds limit) {
  const auto ms = limit.count();
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

namespace {

MPI_Comm duplicate_world() {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return comm;
}

}  // namespace

Link::Link() {
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &world_size), "MPI_Comm_size");
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  check_mpi(MPI_Comm_rank(host, &local_rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(host, &local_size), "MPI_Comm_size");
  check_mpi(MPI_Comm_free(&host), "MPI_Comm_free");
  control = duplicate_world();
  data = duplicate_world();
  failures = duplicate_world();
  board = std::make_unique<FailureBoard>(failures, rank, world_size, host_name());
}

void Link::release() {
  for (MPI_Comm* comm : {&control, &data, &failures}) {
    if (*comm != MPI_COMM_NULL) MPI_Comm_free(comm);
  }
}

void Link::use_memory(const std::weak_ptr<const void>& memory) {
  const std::lock_guard lock(used_mutex_);
  std::erase_if(used_, [](const auto& used) { return used.expired(); });
  used_.push_back(memory);
}

void Link::keep_used_memory() {
  const std::lock_guard lock(used_mutex_);
  for (const auto& used : used_) {
    if (auto memory = used.lock()) keep_for_ever(std::move(memory));
  }
  used_.clear();
}

void keep_for_ever(std::shared_ptr<const void> memory) {
  static std::mutex mutex;
  // Has no end: destructors of other statics may run MPI calls.
  static auto& kept = *std::make_unique<std::vector<std::shared_ptr<const void>>>().release();
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(memory));
}

}  // namespace renai::mpi
