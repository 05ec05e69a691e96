#include "graph_body.hpp"

#include <algorithm>
#include <cstring>

namespace renai::host {
namespace {

/// Waits for the event, then takes over its failure, so that nothing behind a failed event runs.
void wait_for_event(const EventState& event, std::uint64_t ticket) {
  event.await(ticket);
  if (const auto failure = event.failure()) std::rethrow_exception(failure);
}

/// Passes a record: completes the event, with the stream's failure if it has one.
void pass_record(EventState& event, std::uint64_t ticket, const StreamState& stream) noexcept {
  event.complete(ticket, stream.failed() ? stream.failure() : nullptr);
}

template <typename Body>
void guarded(StreamState& stream, const Body& body) noexcept {
  if (stream.failed()) return;
  try {
    body();
  } catch (...) {
    stream.fail(std::current_exception());
  }
}

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t size_bytes) {
  std::memmove(to, from, static_cast<std::size_t>(size_bytes));
}

void zero_bytes(std::byte* to, std::int64_t size_bytes) { std::memset(to, 0, static_cast<std::size_t>(size_bytes)); }

}  // namespace

GraphBody::GraphBody(std::vector<GraphCall> calls, int workers) : calls_(std::move(calls)) {
  waits_ = static_cast<std::size_t>(std::count_if(
      calls_.begin(), calls_.end(), [](const GraphCall& call) { return call.kind == CommandKind::wait; }));
  // A full ring on every worker, one command running on each, and one being launched.
  launches_in_flight_ = static_cast<std::size_t>(workers) * (kRingCapacity + 1) + 1;
  if (waits_ > 0) wait_tickets_.resize(launches_in_flight_ * waits_);
}

std::uint64_t GraphBody::begin_launch() {
  const std::uint64_t launch = launches_.fetch_add(1, std::memory_order_relaxed);
  if (waits_ == 0) return launch;
  std::uint64_t* ticket = &wait_tickets_[launch % launches_in_flight_ * waits_];
  for (const GraphCall& call : calls_) {
    if (call.kind == CommandKind::wait) *ticket++ = call.event->recorded();
  }
  return launch;
}

void GraphBody::run(StreamState& stream, std::uint64_t ticket, std::uint64_t launch) {
  const std::uint64_t* wait_ticket = waits_ > 0 ? &wait_tickets_[launch % launches_in_flight_ * waits_] : nullptr;
  for (const GraphCall& call : calls_) {
    switch (call.kind) {
      case CommandKind::work: guarded(stream, call.work); break;
      case CommandKind::copy: guarded(stream, [&] { copy_bytes(call.to, call.from, call.size_bytes); }); break;
      case CommandKind::zero: guarded(stream, [&] { zero_bytes(call.to, call.size_bytes); }); break;
      case CommandKind::record: pass_record(*call.event, ticket, stream); break;
      case CommandKind::wait:
        guarded(stream, [&] { wait_for_event(*call.event, *wait_ticket); });
        ++wait_ticket;
        break;
      case CommandKind::graph: break;
    }
  }
}

void execute(Command& command) noexcept {
  StreamState& stream = *command.stream;
  switch (command.kind) {
    case CommandKind::work: guarded(stream, command.work); break;
    case CommandKind::copy: guarded(stream, [&] { copy_bytes(command.to, command.from, command.size_bytes); }); break;
    case CommandKind::zero: guarded(stream, [&] { zero_bytes(command.to, command.size_bytes); }); break;
    case CommandKind::record: pass_record(*command.event, command.ticket, stream); break;
    case CommandKind::wait: guarded(stream, [&] { wait_for_event(*command.event, command.ticket); }); break;
    case CommandKind::graph: command.graph->run(stream, command.ticket, command.launch); break;
  }
}

}  // namespace renai::host
