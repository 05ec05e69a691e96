#pragma once
// Backend: surveys a graph (KernelBook), then records its kernels into streams. Leaves: reference, cpu, cuda.

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "renai/base/support.hpp"
#include "renai/comm/communicator.hpp"
#include "renai/device/device.hpp"
#include "renai/graph/computation_graph.hpp"
#include "renai/plan/graph_atlas.hpp"
#include "renai/plan/kernel_book.hpp"
#include "renai/plan/memory_plan.hpp"

namespace renai {

enum class Precision : std::uint8_t { fp32, tf32, bf16, fp16 };
std::string_view precision_name(Precision precision);

/// Everything a recorded kernel may refer to. Addresses stay valid until the captured graphs are gone.
struct BindContext {
  const ComputationGraph* graph = nullptr;
  const KernelBook* book = nullptr;
  const MemoryPlan* plan = nullptr;
  int spec = 0;                         ///< Index of the plan's spec (for per-spec sizes in the book).
  std::byte* arena = nullptr;           ///< plan->arena_bytes bytes.
  std::array<std::byte*, 2> staging{};  ///< Pinned buffers A and B, slot layout.
  std::byte* read_back = nullptr;       ///< Pinned ring: kReadBackSlots x kReadBackBytes.
  std::span<const std::unique_ptr<Event>> bucket_events;  ///< By Node::records_event.
  Communicator* communicator = nullptr;

  std::byte* at(const DTensor& tensor) const { return arena + tensor.offset_bytes; }
  std::byte* at(const Region& region) const { return arena + region.offset_bytes; }
};

/// A read-back slot: metrics (16 f32) then scalars (16 f32), of the step with step % kReadBackSlots == index.
inline constexpr int kReadBackSlots = 64;
inline constexpr std::int64_t kReadBackBytes = 128;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;     ///< "reference", "cpu", "cuda"
  virtual std::string library() const = 0;  ///< "oneDNN 2.6.3", with the thread count's meaning if any.
  virtual Support supports(Precision precision) const = 0;
  /// Kernel choices for every node under every spec. Determinism: a pure function of its arguments and the machine.
  /// Errors: BackendError naming the operator that no kernel of this backend takes, with each candidate's reason.
  virtual KernelBook survey(const ComputationGraph& graph, const ShapeTable& shapes,
                            std::span<const CompileSpec> specs) = 0;
  /// Builds and caches what record needs, so that recording only records.
  virtual void warm_up(const BindContext& context, GraphId id) = 0;
  /// Enqueues (or, on a capturing stream, records) all entries of one part of a graph, with external events after their
  /// nodes.
  virtual void record(const BindContext& context, GraphId id, int part, Stream& stream) = 0;
};

/// The executables of one capture key, one for each part; or, uncaptured, what enqueues the same kernels at each
/// launch.
class CapturedGraph {
 public:
  using Enqueue = std::function<void(Stream& stream, int part)>;
  explicit CapturedGraph(std::vector<std::unique_ptr<RecordedGraph>> parts)
      : parts_(std::move(parts)), part_count_(static_cast<int>(parts_.size())) {}
  CapturedGraph(Enqueue enqueue, int part_count) : enqueue_(std::move(enqueue)), part_count_(part_count) {}
  int part_count() const { return part_count_; }
  void launch(Stream& stream, int part = 0) const {
    if (enqueue_) return enqueue_(stream, part);
    stream.launch(*parts_[static_cast<std::size_t>(part)]);
  }

 private:
  std::vector<std::unique_ptr<RecordedGraph>> parts_;
  Enqueue enqueue_;
  int part_count_ = 0;
};

/// fp64-accumulating naive loops; always built. Runs on HostStream.
std::unique_ptr<Backend> make_reference_backend();
/// oneDNN and vectorised loops with a constant number of threads. Errors: BackendError with the reason when not built.
std::unique_ptr<Backend> make_cpu_backend(int threads);

}  // namespace renai
