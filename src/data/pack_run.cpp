#include "pack_run.hpp"

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <sstream>

#include "pack_journal.hpp"
#include "renai/base/check.hpp"
#include "renai/base/elapsed.hpp"
#include "renai/base/error.hpp"
#include "renai/base/thread.hpp"
#include "renai/io/atomic_file.hpp"
#include "shard_file.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{300};  ///< How often ranks hear from each other, far below any deadline.

/// Unwinds the worker of a rank that gives up.
struct GivenUp {};

/// Makes a rank's shards on threads of its own, so that the rank can speak with the others meanwhile. Two shards at a
/// time: while one is flushed to disk, the other is read and decoded.
class Worker {
 public:
  Worker(const PackPlan& plan, int rank, int world_size)
      : plan_(plan), stride_(static_cast<std::size_t>(world_size)), next_(static_cast<std::size_t>(rank)) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes_.start("a packing thread", "", [this] { run(); });
  }

  /// Waits for one tick or the end. The message: samples handled so far, "end" or "more", then the shards done since
  /// the last message. Errors: those of the shard that failed.
  std::string report() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kTick, [this] { return failure_ || running_ == 0; });
    if (failure_) std::rethrow_exception(failure_);
    std::string text = std::to_string(handled_) + (running_ == 0 ? " end\n" : " more\n") + finished_;
    finished_.clear();
    return text;
  }

 private:
  void run() {
    std::exception_ptr failure;
    try {
      while (make_next()) {
      }
    } catch (const GivenUp&) {
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_) failure_ = failure;
    --running_;
    changed_.notify_all();
  }

  void give_up() {
    const std::lock_guard<std::mutex> lock(mutex_);
    giving_up_ = true;
  }

  bool make_next() {
    std::size_t own = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (giving_up_) throw GivenUp{};
      own = next_;
      next_ += stride_;
    }
    if (own >= plan_.shards.size()) return false;
    const ShardSummary summary = plan_.make(plan_.shards[own], [this](std::int64_t samples) { advance(samples); });
    const std::lock_guard<std::mutex> lock(mutex_);
    finished_ += "shard " + std::to_string(own) + "\n" + print_summary(summary);
    return true;
  }

  void advance(std::int64_t samples) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (giving_up_ || failure_) throw GivenUp{};
    handled_ += samples;
  }

  const PackPlan& plan_;
  const std::size_t stride_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t next_;
  std::int64_t handled_ = 0;
  std::string finished_;
  bool giving_up_ = false;
  std::exception_ptr failure_;
  static constexpr std::size_t kLanes = 2;
  std::size_t running_ = kLanes;
  ThreadGroup lanes_{[this] { give_up(); }};
};

/// What ranks have told so far.
struct Told {
  std::vector<ShardSummary> summaries;
  std::vector<bool> known;
  PackProgress progress;
  bool all_ended = false;
};

void take_shards(std::istringstream& in, Told& told) {
  for (std::string line; std::getline(in, line);) {
    std::size_t index = 0;
    RENAI_CHECK(std::sscanf(line.c_str(), "shard %zu", &index) == 1 && index < told.summaries.size(),
                "a packing message names its shard");
    std::string text;
    while (std::getline(in, line) && line != "end") text += line + "\n";
    told.summaries[index] = parse_summary(text + "end\n");
    told.known[index] = true;
    ++told.progress.shards;
    told.progress.refused += static_cast<std::int64_t>(told.summaries[index].refused.size());
  }
}

void take_reports(const std::vector<std::string>& reports, Told& told) {
  told.all_ended = true;
  told.progress.samples = 0;
  for (const std::string& report : reports) {
    std::istringstream in(report);
    std::int64_t handled = 0;
    std::string state, rest;
    in >> handled >> state;
    std::getline(in, rest);
    told.progress.samples += handled;
    told.all_ended = told.all_ended && state == "end";
    take_shards(in, told);
  }
}

Told make_shards(const PackPlan& plan, const PackOptions& options) {
  Told told;
  told.summaries.resize(plan.shards.size());
  told.known.resize(plan.shards.size());
  for (const ShardPlan& shard : plan.shards) told.progress.all_samples += shard.samples;
  told.progress.all_shards = static_cast<std::int64_t>(plan.shards.size());
  const auto start = Clock::now();
  Worker worker(plan, options.rank, options.world_size);
  while (!told.all_ended) {
    take_reports(gather_texts(options, worker.report()), told);
    told.progress.seconds = seconds_since(start);
    told.progress.ended = told.all_ended;
    if (options.progress && options.rank == 0) options.progress(told.progress);
  }
  return told;
}

/// Mean and standard deviation by channel from exact sums of the training split; a constant channel gets deviation 1.
void set_statistics(Manifest& manifest, const PackPlan& plan, const std::vector<ShardSummary>& summaries) {
  // 128 bits: the square of a sum over 2^40 images passes 64.
  __extension__ using Wide = unsigned __int128;
  for (std::size_t c = 0; c < static_cast<std::size_t>(manifest.channels); ++c) {
    Wide sum = 0, square_sum = 0, units = 0;
    for (std::size_t i = 0; i < plan.shards.size(); ++i) {
      if (plan.shards[i].split != 0) continue;
      sum += summaries[i].sum[c];
      square_sum += summaries[i].square_sum[c];
      units += summaries[i].units;
    }
    RENAI_CHECK(units > 0, "statistics are over something");
    const double count = static_cast<double>(units);
    const double variance =
        square_sum * units > sum * sum ? static_cast<double>(square_sum * units - sum * sum) / (count * count) : 0.0;
    manifest.mean[c] = static_cast<double>(sum) / count;
    manifest.std[c] = variance > 0.0 ? std::sqrt(variance) : 1.0;
  }
}

Manifest make_manifest(const PackPlan& plan, const Told& told) {
  Manifest manifest = plan.manifest;
  for (std::size_t i = 0; i < plan.shards.size(); ++i) {
    RENAI_CHECK(told.known[i], "every shard was made by one rank");
    const ShardSummary& summary = told.summaries[i];
    if (summary.samples == 0) continue;  // All of its files were left out: it has no file.
    manifest.splits[plan.shards[i].split].shards.push_back({plan.shards[i].file, summary.samples, summary.digest});
  }
  for (const SplitInfo& split : manifest.splits) {
    if (split.samples() > 0) continue;
    throw DataError("packing split '" + split.name + "'", "none of its samples could be used",
                    "look at what is said of its files");
  }
  set_statistics(manifest, plan, told.summaries);
  return manifest;
}

std::string list_refused(const PackPlan& plan, const Told& told) {
  std::string text;
  for (std::size_t i = 0; i < plan.shards.size(); ++i) {
    for (const std::string& line : told.summaries[i].refused) text += line + "\n";
  }
  return text;
}

}  // namespace

void plan_shards(std::size_t split, const std::string& name, std::int64_t samples, std::int64_t shard_samples,
                 std::vector<ShardPlan>& plans) {
  if (shard_samples < 1) {
    throw UserError("--shard-samples " + std::to_string(shard_samples), "a shard has at least one sample",
                    "use a positive number");
  }
  const std::int64_t count = samples / shard_samples + (samples % shard_samples != 0 ? 1 : 0);
  for (std::int64_t index = 0; index < count; ++index) {
    ShardPlan plan;
    plan.split = split;
    plan.index = index;
    plan.count = count;
    plan.first = index * shard_samples;
    plan.samples = std::min(shard_samples, samples - plan.first);
    char numbers[64];
    std::snprintf(numbers, sizeof(numbers), "-%05lld-of-%05lld.h5", static_cast<long long>(index),
                  static_cast<long long>(count));
    plan.file = name + numbers;
    plans.push_back(std::move(plan));
  }
}

Manifest run_pack(const PackPlan& plan, const PackOptions& options) {
  PackJournal journal(options, plan.settings, plan.input);
  const Told told = make_shards(plan, options);
  if (plan.check) plan.check(told.summaries);
  const Manifest manifest = make_manifest(plan, told);
  if (options.rank == 0) journal.complete(manifest, list_refused(plan, told));
  gather_texts(options, "");  // The set is complete when any rank returns.
  return manifest;
}

}  // namespace renai
