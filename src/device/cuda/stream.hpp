#pragma once
// Stream, event and recorded graph of the cuda leaf.

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>

#include "gpu.hpp"
#include "renai/device/cuda.hpp"

namespace renai::cuda {

class GpuEvent final : public Event {
 public:
  /// Effects: a timed event stores the time of each record, which a plain one saves.
  GpuEvent(std::shared_ptr<Core> core, bool timed);
  ~GpuEvent() override;
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;

  bool ready() const override;
  bool wait_host(std::chrono::milliseconds limit) const override;
  bool wait_background(std::chrono::milliseconds limit) const override;
  double microseconds_since(const Event& earlier) const override;
  cudaEvent_t native() const noexcept { return event_; }
  /// The event is recorded anew: time waited for an earlier record counts no more.
  void restart_waiting() const noexcept { waiting_since_.store(0, std::memory_order_relaxed); }

 private:
  bool reached() const;

  std::shared_ptr<Core> core_;
  bool timed_;
  cudaEvent_t event_ = nullptr;
  /// When waits for the record that is still ahead began, so that many short waits add up; 0: nobody waits.
  mutable std::atomic<std::int64_t> waiting_since_{0};
};

class GpuGraph final : public RecordedGraph {
 public:
  GpuGraph(int ordinal, cudaGraphExec_t executable) : ordinal_(ordinal), executable_(executable) {}
  ~GpuGraph() override;
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;
  cudaGraphExec_t native() const noexcept { return executable_; }

 private:
  int ordinal_;
  cudaGraphExec_t executable_;
};

class GpuStream final : public CudaStream {
 public:
  /// `priority` as the library counts: lower numbers go first.
  GpuStream(std::shared_ptr<Core> core, int priority);
  ~GpuStream() override;  ///< Waits for the work so far; its failure is dropped.
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  void* native() const override { return stream_; }
  void begin_capture() override;
  std::unique_ptr<RecordedGraph> end_capture() override;
  void launch(RecordedGraph& graph) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void copy(std::byte* to, const std::byte* from, std::int64_t size_bytes) override;
  void zero(std::byte* at, std::int64_t size_bytes) override;
  void synchronize() override;

 private:
  std::shared_ptr<Core> core_;
  cudaStream_t stream_ = nullptr;
  bool capturing_ = false;
};

}  // namespace renai::cuda
