#include "control.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "renai/base/check.hpp"

namespace renai::mpi {
namespace {

/// First message of an all_gather: where the sender is, how much it has to say, and the text itself when it is short.
struct Envelope {
  std::uint64_t sequence = 0, message_bytes = 0;
  std::array<char, 112> stage{};  ///< Cut to fit, zero-terminated.
  std::array<char, 896> text{};
};
static_assert(sizeof(Envelope) == 1024);

constexpr int kEnvelopeKind = 0, kTextKind = 1, kMaximumKind = 2;
constexpr std::int64_t kMaxMessageBytes = std::int64_t{1} << 30;

class MpiControlGroup final : public ControlGroup {
 public:
  MpiControlGroup(std::shared_ptr<Link> link, std::chrono::milliseconds deadline)
      : link_(std::move(link)),
        deadline_(deadline),
        instance_(link_->next_control++),
        envelopes_(std::make_shared<std::vector<Envelope>>(static_cast<std::size_t>(link_->world_size))),
        values_(std::make_shared<std::vector<int>>(static_cast<std::size_t>(link_->world_size))),
        asking_(link_) {
    asking_.reserve(2 * static_cast<std::size_t>(link_->world_size));
  }

  int rank() const override { return link_->rank; }
  int world_size() const override { return link_->world_size; }
  std::chrono::milliseconds deadline() const override { return deadline_; }
  void poll() override { link_->board->check(); }
  void report_failure(const Error& error) noexcept override { link_->board->post(error); }

  std::vector<std::string> all_gather(std::string_view message, std::string_view stage) override {
    link_->board->check();
    exchange_envelopes(message, stage);
    check_same_point(stage);
    return gather_texts(message, stage);
  }

  void start_maximum(int value) override {
    RENAI_CHECK(!open_, "a question is open already");
    open_ = true;
    const auto value_of = [this](int rank) { return &(*values_)[static_cast<std::size_t>(rank)]; };
    *value_of(rank()) = value;
    asking_.hold(values_);
    const int tag = tag_of(instance_, kMaximumKind);
    for_each_peer([&](int peer) { asking_.receive(value_of(peer), sizeof(int), peer, tag, link_->control); });
    for_each_peer([&](int peer) { asking_.send(value_of(rank()), sizeof(int), peer, tag, link_->control); });
  }

  int finish_maximum(std::string_view stage) override {
    RENAI_CHECK(open_, "no question is open");
    asking_.finish(deadline_, stage);
    open_ = false;
    return *std::max_element(values_->begin(), values_->end());
  }

 private:
  Envelope& envelope_of(int rank) { return (*envelopes_)[static_cast<std::size_t>(rank)]; }

  void exchange_envelopes(std::string_view message, std::string_view stage) {
    auto own = std::make_shared<Envelope>();
    own->sequence = ++sequence_;
    own->message_bytes = message.size();
    stage.copy(own->stage.data(), own->stage.size() - 1);
    message.copy(own->text.data(), own->text.size());
    envelope_of(rank()) = *own;
    Exchange exchange(link_);
    exchange.hold(own);
    exchange.hold(envelopes_);
    const int tag = tag_of(instance_, kEnvelopeKind);
    for_each_peer([&](int peer) { exchange.receive(&envelope_of(peer), sizeof(Envelope), peer, tag, link_->control); });
    for_each_peer([&](int peer) { exchange.send(own.get(), sizeof(Envelope), peer, tag, link_->control); });
    exchange.finish(deadline_, stage);
  }

  /// Ranks that run different programs would wait for each other in different places.
  void check_same_point(std::string_view stage) {
    const Envelope& own = envelope_of(rank());
    for (int peer = 0; peer < world_size(); ++peer) {
      const Envelope& other = envelope_of(peer);
      if (other.sequence == own.sequence && other.stage == own.stage) continue;
      throw PeerError("rank " + std::to_string(peer) + " is at another point than rank " + std::to_string(rank()),
                      "it is " + std::string(other.stage.data()) + " (exchange " + std::to_string(other.sequence) +
                          "), this rank is " + std::string(stage) + " (exchange " + std::to_string(own.sequence) + ")",
                      "start all ranks with the same program and the same options");
    }
  }

  std::vector<std::string> gather_texts(std::string_view message, std::string_view stage) {
    const auto shared_texts = std::make_shared<std::vector<std::string>>(envelopes_->size());
    std::vector<std::string>& texts = *shared_texts;
    texts[static_cast<std::size_t>(rank())] = message;
    Exchange exchange(link_);
    exchange.hold(shared_texts);
    for_each_peer([&](int peer) {
      const Envelope& envelope = envelope_of(peer);
      std::string& text = texts[static_cast<std::size_t>(peer)];
      if (envelope.message_bytes <= envelope.text.size()) {
        text.assign(envelope.text.data(), envelope.message_bytes);
      } else {
        text.resize(envelope.message_bytes);
        cut_block(
            static_cast<std::int64_t>(text.size()), kMaxMessageBytes, [&](std::int64_t from, std::int64_t size_bytes) {
              exchange.receive(text.data() + from, size_bytes, peer, tag_of(instance_, kTextKind), link_->control);
            });
      }
    });
    if (message.size() > Envelope{}.text.size()) {
      const auto own = std::make_shared<std::string>(message);
      exchange.hold(own);
      for_each_peer([&](int peer) {
        cut_block(static_cast<std::int64_t>(own->size()), kMaxMessageBytes,
                  [&](std::int64_t from, std::int64_t size_bytes) {
                    exchange.send(own->data() + from, size_bytes, peer, tag_of(instance_, kTextKind), link_->control);
                  });
      });
    }
    exchange.finish(deadline_, stage);
    return std::move(texts);
  }

  /// Peers in an order that differs from rank to rank, so that not all send to the same one first.
  template <typename Visit>
  void for_each_peer(const Visit& visit) const {
    for (int step = 1; step < world_size(); ++step) visit((rank() + step) % world_size());
  }

  std::shared_ptr<Link> link_;
  std::chrono::milliseconds deadline_;
  int instance_;
  std::uint64_t sequence_ = 0;
  std::shared_ptr<std::vector<Envelope>> envelopes_;  ///< By rank.
  // Of start_maximum, which is called between steps and allocates nothing.
  std::shared_ptr<std::vector<int>> values_;  ///< By rank.
  Exchange asking_;
  bool open_ = false;
};

}  // namespace

std::unique_ptr<ControlGroup> make_control_group(std::shared_ptr<Link> link, std::chrono::milliseconds deadline) {
  RENAI_CHECK(deadline.count() > 0, "a control group needs a deadline");
  return std::make_unique<MpiControlGroup>(std::move(link), deadline);
}

}  // namespace renai::mpi
