#include "stream.hpp"

#include <algorithm>

#include "renai/base/check.hpp"

namespace renai::host {
namespace {

const std::shared_ptr<EventState>& state_of(const Event& event) {
  const auto* host = dynamic_cast<const HostEvent*>(&event);
  RENAI_CHECK(host != nullptr, "a host stream was given an event of another device");
  return host->state();
}

}  // namespace

Core::Core(const HostDeviceOptions& device_options) : options(device_options) {
  RENAI_CHECK(options.stream_count >= 1 && options.stream_count <= 4, "a host device has 1 to 4 streams");
  const int* first = options.worker_of_stream;
  const int count = *std::max_element(first, first + options.stream_count) + 1;
  RENAI_CHECK(*std::min_element(first, first + options.stream_count) >= 0 && count <= 4,
              "worker numbers lie between 0 and 3");
  for (int i = 0; i < count; ++i) workers.push_back(std::make_unique<Worker>(i, counters));
}

Worker& Core::worker_of(int stream_index) {
  RENAI_CHECK(stream_index >= 0 && stream_index < options.stream_count,
              "stream index " + std::to_string(stream_index) + " is out of range");
  return *workers[static_cast<std::size_t>(options.worker_of_stream[stream_index])];
}

StreamOnWorker::StreamOnWorker(std::shared_ptr<Core> core, int index)
    : core_(std::move(core)), worker_(&core_->worker_of(index)) {}

StreamOnWorker::~StreamOnWorker() {
  push_record(drained_);
  drained_->await(drained_->recorded());
}

void StreamOnWorker::rethrow_failure() const {
  if (state_.failed()) std::rethrow_exception(state_.failure());
}

void StreamOnWorker::push(Command&& command) {
  command.stream = &state_;
  worker_->push(std::move(command));
}

/// Makes `ticket` the event's latest record. Records of one event complete in the order of the calls: where the latest
/// one is still pending on another worker, this worker waits for it first.
void StreamOnWorker::open_event(const std::shared_ptr<EventState>& event, std::uint64_t ticket) {
  const std::uint64_t latest = event->recorded();
  if (event->worker() != worker_->index() && !event->reached(latest)) {
    push({.kind = CommandKind::wait, .event = event, .ticket = latest});
  }
  event->open(ticket, worker_->index());
}

void StreamOnWorker::push_record(const std::shared_ptr<EventState>& event) {
  const std::uint64_t ticket = core_->next_ticket();
  open_event(event, ticket);
  push({.kind = CommandKind::record, .event = event, .ticket = ticket});
}

void StreamOnWorker::begin_capture() {
  rethrow_failure();
  std::thread::id nobody{};
  RENAI_CHECK(capturer_.compare_exchange_strong(nobody, std::this_thread::get_id()), "the stream is already capturing");
  captured_.clear();
}

std::unique_ptr<RecordedGraph> StreamOnWorker::end_capture() {
  RENAI_CHECK(capturing(), "end_capture without begin_capture on this thread");
  auto body = std::make_shared<GraphBody>(std::move(captured_), static_cast<int>(core_->workers.size()));
  captured_ = {};
  capturer_.store(std::thread::id{}, std::memory_order_release);
  return std::make_unique<HostGraph>(std::move(body));
}

void StreamOnWorker::launch(RecordedGraph& graph) {
  auto* host = dynamic_cast<HostGraph*>(&graph);
  RENAI_CHECK(host != nullptr, "a host stream was given a graph of another device");
  const std::shared_ptr<GraphBody>& body = host->body();
  if (capturing()) {
    captured_.insert(captured_.end(), body->calls().begin(), body->calls().end());
    return;
  }
  rethrow_failure();
  core_->counters->launches.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t ticket = core_->next_ticket();
  const std::uint64_t launch_number = body->begin_launch();
  for (const GraphCall& call : body->calls()) {
    if (call.kind == CommandKind::record) open_event(call.event, ticket);
  }
  push({.kind = CommandKind::graph, .graph = body, .ticket = ticket, .launch = launch_number});
}

void StreamOnWorker::record(Event& event) {
  const auto& state = state_of(event);
  if (!capturing()) {
    rethrow_failure();
    push_record(state);
    return;
  }
  const bool again = std::any_of(captured_.begin(), captured_.end(), [&](const GraphCall& call) {
    return call.kind == CommandKind::record && call.event == state;
  });
  RENAI_CHECK(!again, "an event is recorded twice in one capture");
  captured_.push_back({.kind = CommandKind::record, .event = state});
}

void StreamOnWorker::wait(const Event& event) {
  const auto& state = state_of(event);
  if (capturing()) {
    captured_.push_back({.kind = CommandKind::wait, .event = state});
    return;
  }
  rethrow_failure();
  // Passed through even when reached already: a failed event must fail this stream too.
  push({.kind = CommandKind::wait, .event = state, .ticket = state->recorded()});
}

void StreamOnWorker::copy(std::byte* to, const std::byte* from, std::int64_t size_bytes) {
  RENAI_CHECK(size_bytes >= 0, "negative size of a copy");
  if (capturing()) {
    captured_.push_back({.kind = CommandKind::copy, .to = to, .from = from, .size_bytes = size_bytes});
    return;
  }
  rethrow_failure();
  push({.kind = CommandKind::copy, .to = to, .from = from, .size_bytes = size_bytes});
}

void StreamOnWorker::zero(std::byte* at, std::int64_t size_bytes) {
  RENAI_CHECK(size_bytes >= 0, "negative size to clear");
  if (capturing()) {
    captured_.push_back({.kind = CommandKind::zero, .to = at, .size_bytes = size_bytes});
    return;
  }
  rethrow_failure();
  push({.kind = CommandKind::zero, .to = at, .size_bytes = size_bytes});
}

void StreamOnWorker::synchronize() {
  RENAI_CHECK(!capturing(), "synchronize inside a capture");
  core_->counters->host_synchronizations.fetch_add(1, std::memory_order_relaxed);
  push_record(drained_);
  drained_->await(drained_->recorded());
  rethrow_failure();
}

void StreamOnWorker::enqueue(std::function<void()> work) {
  RENAI_CHECK(work != nullptr, "empty work for a host stream");
  if (capturing()) {
    captured_.push_back({.kind = CommandKind::work, .work = std::move(work)});
    return;
  }
  rethrow_failure();
  push({.kind = CommandKind::work, .work = std::move(work)});
}

}  // namespace renai::host
