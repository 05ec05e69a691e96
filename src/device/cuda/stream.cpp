#include "stream.hpp"

#include "renai/base/check.hpp"
#include "renai/base/handle.hpp"

namespace renai::cuda {
namespace {

using Clock = std::chrono::steady_clock;

const GpuEvent& gpu_event(const Event& event) {
  const auto* own = dynamic_cast<const GpuEvent*>(&event);
  RENAI_CHECK(own != nullptr, "a GPU stream was given an event of another device");
  return *own;
}

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const noexcept { cudaGraphDestroy(graph); }
};

}  // namespace

GpuEvent::GpuEvent(std::shared_ptr<Core> core, bool timed) : core_(std::move(core)), timed_(timed) {
  make_current(core_->ordinal);
  check_cuda(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming), "making an event");
}

GpuEvent::~GpuEvent() {
  if (!leaving()) cudaEventDestroy(event_);
}

/// A never recorded event stands for no work: the library calls it reached.
bool GpuEvent::reached() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check_cuda(status, "the GPU's work before an event");
  waiting_since_.store(0, std::memory_order_relaxed);
  return true;
}

bool GpuEvent::ready() const {
  make_current(core_->ordinal);
  return reached();
}

bool GpuEvent::wait_host(std::chrono::milliseconds limit) const {
  if (ready()) return true;
  core_->host_synchronizations.fetch_add(1, std::memory_order_relaxed);
  return wait_background(limit);
}

bool GpuEvent::wait_background(std::chrono::milliseconds limit) const {
  if (ready()) return true;
  std::int64_t since = 0;
  const std::int64_t now = Clock::now().time_since_epoch().count();
  if (waiting_since_.compare_exchange_strong(since, now, std::memory_order_relaxed)) since = now;
  Patience patience(*core_, Clock::time_point(Clock::duration(since)));
  do {
    patience.rest();
    if (reached()) return true;
  } while (patience.waited() < limit);
  return false;
}

double GpuEvent::microseconds_since(const Event& earlier) const {
  const GpuEvent& other = gpu_event(earlier);
  RENAI_CHECK(timed_ && other.timed_, "time between events that were not made for measuring");
  float milliseconds = 0.0f;
  check_cuda(cudaEventElapsedTime(&milliseconds, other.event_, event_), "measuring the time between two events");
  return 1e3 * static_cast<double>(milliseconds);
}

GpuGraph::~GpuGraph() {
  if (leaving()) return;
  cudaSetDevice(ordinal_);
  cudaGraphExecDestroy(executable_);
}

GpuStream::GpuStream(std::shared_ptr<Core> core, int priority) : core_(std::move(core)) {
  make_current(core_->ordinal);
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority), "making a stream");
}

GpuStream::~GpuStream() {
  if (leaving()) return;
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

void GpuStream::begin_capture() {
  RENAI_CHECK(!capturing_, "the stream is already capturing");
  make_current(core_->ordinal);
  check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "beginning a capture");
  capturing_ = true;
}

std::unique_ptr<RecordedGraph> GpuStream::end_capture() {
  RENAI_CHECK(capturing_, "end_capture without begin_capture");
  capturing_ = false;
  cudaGraph_t captured = nullptr;
  check_cuda(cudaStreamEndCapture(stream_, &captured), "capturing a graph");
  const Handle<cudaGraph_t, DestroyGraph> graph(captured);
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaGraphInstantiate(&executable, graph.get(), 0), "making a graph executable");
  auto recorded = std::make_unique<GpuGraph>(core_->ordinal, executable);
  check_cuda(cudaGraphUpload(executable, stream_), "uploading a graph");
  return recorded;
}

void GpuStream::launch(RecordedGraph& graph) {
  const auto* own = dynamic_cast<const GpuGraph*>(&graph);
  RENAI_CHECK(own != nullptr, "a GPU stream was given a graph of another device");
  if (!capturing_) core_->launches.fetch_add(1, std::memory_order_relaxed);
  check_cuda(cudaGraphLaunch(own->native(), stream_), "launching a graph");
}

void GpuStream::record(Event& event) {
  const unsigned flags = capturing_ ? cudaEventRecordExternal : cudaEventRecordDefault;
  const GpuEvent& own = gpu_event(event);
  own.restart_waiting();
  check_cuda(cudaEventRecordWithFlags(own.native(), stream_, flags), "recording an event");
}

// A wait that the host issues sees the latest record, also where a graph launched before it records the event:
// launching a graph records the external events inside.
void GpuStream::wait(const Event& event) {
  const unsigned flags = capturing_ ? cudaEventWaitExternal : cudaEventWaitDefault;
  check_cuda(cudaStreamWaitEvent(stream_, gpu_event(event).native(), flags), "making a stream wait for an event");
}

void GpuStream::copy(std::byte* to, const std::byte* from, std::int64_t size_bytes) {
  RENAI_CHECK(size_bytes >= 0, "negative size of a copy");
  if (size_bytes == 0) return;
  check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(size_bytes), cudaMemcpyDefault, stream_), "a copy");
}

void GpuStream::zero(std::byte* at, std::int64_t size_bytes) {
  RENAI_CHECK(size_bytes >= 0, "negative size to clear");
  if (size_bytes == 0) return;
  check_cuda(cudaMemsetAsync(at, 0, static_cast<std::size_t>(size_bytes), stream_), "clearing memory");
}

void GpuStream::synchronize() {
  RENAI_CHECK(!capturing_, "synchronize inside a capture");
  core_->host_synchronizations.fetch_add(1, std::memory_order_relaxed);
  // Looked at from outside, so that a wait for a missing rank can be given up.
  Patience patience(*core_, Clock::now());
  for (cudaError_t status = cudaStreamQuery(stream_); status != cudaSuccess; status = cudaStreamQuery(stream_)) {
    if (status != cudaErrorNotReady) check_cuda(status, "the GPU's work");
    cudaGetLastError();
    patience.rest();
  }
}

}  // namespace renai::cuda
