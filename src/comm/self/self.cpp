// The self leaf: one rank without MPI. Every collective is done before it starts.

#include "renai/base/check.hpp"
#include "renai/comm/mpi.hpp"

namespace renai {
namespace {

class SelfControlGroup final : public ControlGroup {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  std::vector<std::string> all_gather(std::string_view message, std::string_view) override {
    return {std::string(message)};
  }
  void report_failure(const Error&) noexcept override {}  // There is nobody to tell.
  void poll() override {}
  void start_maximum(int value) override { maximum_ = value; }
  int finish_maximum(std::string_view) override { return maximum_; }
  std::chrono::milliseconds deadline() const override { return std::chrono::milliseconds{0}; }

 private:
  int maximum_ = 0;
};

class SelfCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  std::string name() const override { return "self"; }
  std::int64_t tree_reduce_scratch_bytes(std::int64_t) const override { return 0; }
  /// A tree with one root: the values are the sum.
  void tree_reduce(float*, std::int64_t elems, std::byte*, Stream&, std::string) override {
    RENAI_CHECK(elems >= 0, "negative element count of a reduction");
  }
  void all_gather(std::byte*, std::int64_t block_bytes, Stream&, std::string) override {
    RENAI_CHECK(block_bytes >= 0, "negative block size of an all-gather");
  }
};

}  // namespace

std::unique_ptr<ControlGroup> make_self_control_group() { return std::make_unique<SelfControlGroup>(); }
std::unique_ptr<Communicator> make_self_communicator() { return std::make_unique<SelfCommunicator>(); }

}  // namespace renai
