#include <cstring>
#include <limits>

#include "renai/base/check.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/graph/segments.hpp"
#include "renai/train/lr_schedule.hpp"
#include "renai/train/task.hpp"

// The order of a step on the four streams (x = A or B, alternating from pass to pass):
//
//   TRANSFER  wait slot_free[x]; TRANSFER_x; record transferred[x]
//   UPDATE    ZERO_GRAD; record zero_done
//   COMPUTE   wait transferred[x], zero_done or merged; FIRST_LAYER_FWD_x; DEEP_FWD_BWD; FIRST_LAYER_BWD_x;
//             record slot_free[x], shard_done
//   UPDATE    with several shards a rank, or micro-batches (--accumulate): wait bucket[b]; CAST_DEEP_GRAD part b; ...
//             wait shard_done; CAST_FIRST_GRAD; record merged
//   COMM      after the last of them: wait bucket[b] or its merge; DEEP_COMM part b; ...
//             FIRST_COMM; STATS_COMM; record comm_done
//             (with --sync-bn, whose passes hold collectives, all of it behind shard_done)
//   UPDATE    wait comm_done or shard_done; zero frozen gradients, check; record checked
//   COMPUTE   with LARS: wait checked; LARS_FC_OPT; record fc_updated
//   UPDATE    convolutions of LARS, optimizer; wait fc_updated; half weights, statistics, averages, metrics;
//             record step_done
//
// The next step's zero_done stands behind all of that on UPDATE, so its forward pass sees the new weights of either
// precision.

namespace renai {
namespace {

constexpr std::array<GraphId, 2> kTransfer{GraphId::TRANSFER_A, GraphId::TRANSFER_B};
constexpr std::array<GraphId, 2> kFirstForward{GraphId::FIRST_LAYER_FWD_A, GraphId::FIRST_LAYER_FWD_B};
constexpr std::array<GraphId, 2> kFirstBackward{GraphId::FIRST_LAYER_BWD_A, GraphId::FIRST_LAYER_BWD_B};
constexpr std::array<GraphId, 2> kInference{GraphId::INF_MAIN_A, GraphId::INF_MAIN_B};
constexpr std::array<GraphId, 2> kEmaInference{GraphId::INF_EMA_A, GraphId::INF_EMA_B};
constexpr std::chrono::milliseconds kHostPatience{100};
/// Jobs submitted ahead of the one consumed: both staging buffers and one queued.
constexpr std::int64_t kJobsAhead = 3;

}  // namespace

StepSchedule::StepSchedule(Engine& engine, const Recipe& recipe, const TaskData& data, const Sampler* train_sampler,
                           const Sampler* val_sampler, Loader& loader)
    : engine_(&engine),
      recipe_(&recipe),
      data_(data),
      train_sampler_(train_sampler),
      val_sampler_(val_sampler),
      loader_(&loader),
      batches_(train_sampler != nullptr ? train_sampler->split().batches() : 0),
      local_shards_(engine.blueprint().graph.local_shards()),
      micro_batches_(recipe.accumulate) {
  const Blueprint& blueprint = engine.blueprint();
  phases_ = recipe.resolution.empty() ? std::vector<ResolutionPhase>{{blueprint.specs.front().shape.h, 0}}
                                      : parse_resolution(recipe.resolution);
  fault_ = parse_fault(recipe.inject_fault);
  freeze_ = make_freeze_plan(recipe, blueprint.graph.params());
  const auto note_parts = [&](GraphId id) {
    part_groups_[static_cast<std::size_t>(id)] = freeze_group_of_parts(blueprint.graph, id);
  };
  note_parts(GraphId::ZERO_GRAD);
  for (const GraphId id : kUpdateGraphs) note_parts(id);
  for (auto* event : {&zero_done_, &shard_done_, &merged_, &comm_done_, &checked_, &fc_updated_, &inference_done_,
                      &accumulated_, &result_done_}) {
    *event = engine.create_event();
  }
  for (auto& event : transferred_) event = engine.create_event();
  for (auto& event : slot_free_) event = engine.create_event();
  for (int i = 0; i < blueprint.graph.deep_buckets(); ++i) bucket_merged_.push_back(engine.create_event());
  for (int i = 0; i < kStepsInFlight; ++i) step_done_.push_back(engine.create_event());
  result_ = engine.run().device->allocate_pinned(blueprint.plans.front().region(region_name::kAccumulators).size_bytes);
  ids_.reserve(static_cast<std::size_t>(local_shards_ * micro_batches_ * blueprint.slot.rows));
}

int StepSchedule::first_shard() const { return engine_->run().communicator->rank() * local_shards_; }

void StepSchedule::begin(std::int64_t first_step, std::int64_t total_steps, bool validates_first) {
  total_steps_ = total_steps;
  next_ = Cursor{};
  next_->step = first_step;
  next_->batch = batches_ > 0 ? first_step % batches_ : 0;
  if (batches_ == 0 || first_step >= total_steps || validates_first) next_->validation = true;
  if (next_->validation) next_->batch = 0;
  if (next_->validation && val_sampler_ == nullptr) next_.reset();
  submit_ahead();
}

/// Moves to the next shard of work, or micro-batch of one, in run order; false at the end of all work.
bool StepSchedule::advance(Cursor& cursor) const {
  if (!cursor.validation && ++cursor.micro_batch < micro_batches_) return true;
  cursor.micro_batch = 0;
  if (++cursor.local_shard < local_shards_) return true;
  cursor.local_shard = 0;
  if (cursor.validation) {
    if (++cursor.batch < val_sampler_->split().batches()) return true;
    cursor.batch = 0;
    cursor.ema = !cursor.ema && recipe_->ema > 0.0;
    if (cursor.ema) return true;
    cursor.validation = false;
    return cursor.step < total_steps_;
  }
  ++cursor.step;
  cursor.batch = cursor.step % batches_;
  const bool epoch_over = cursor.batch == 0;
  const bool all_over = cursor.step >= total_steps_;
  if (val_sampler_ != nullptr && (epoch_over || all_over)) {
    cursor.validation = true;
    cursor.batch = 0;
    return true;
  }
  return !all_over;
}

ShardJob StepSchedule::make_job(const Cursor& cursor) const {
  ShardJob job;
  const bool validation = cursor.validation;
  job.dataset = validation ? data_.val : data_.train;
  job.sampler = validation ? val_sampler_ : train_sampler_;
  job.epoch = batches_ > 0 ? cursor.step / batches_ : 0;
  job.batch = cursor.batch;
  job.shard = first_shard() + cursor.local_shard;
  if (!validation) job.shard = job.shard * micro_batches_ + cursor.micro_batch;
  const Blueprint& blueprint = engine_->blueprint();
  const int variant = validation ? blueprint.validation_variant(false)
                                 : blueprint.training_variant(phase_of_epoch(phases_, job.epoch), false);
  job.h = blueprint.specs[static_cast<std::size_t>(variant)].shape.h;
  job.w = blueprint.specs[static_cast<std::size_t>(variant)].shape.w;
  job.control.seed = recipe_->seed;
  job.control.step = cursor.step;
  job.control.epoch = static_cast<std::int32_t>(job.epoch);
  job.control.shard = job.shard;
  job.control.micro_batch = cursor.micro_batch;
  job.control.local_shard = cursor.local_shard;
  job.control.phase = validation ? 1 : 0;
  const bool first = cursor.local_shard == 0 && cursor.micro_batch == 0;
  if (fault_.kind == FaultKind::overflow && !validation && first &&
      fault_.due(cursor.step, engine_->run().control->rank())) {
    job.control.loss_factor = std::numeric_limits<float>::infinity();
  }
  job.control.lr = validation ? 0.0f : learning_rate(*recipe_, cursor.step, total_steps_, batches_);
  return job;
}

void StepSchedule::submit_ahead() {
  while (next_.has_value() && submitted_ - consumed_ < kJobsAhead) {
    loader_->submit(make_job(*next_));
    ++submitted_;
    if (!advance(*next_)) next_.reset();
  }
}

/// Waits for the next staged shard: the one host wait of a step. Returns its buffer.
int StepSchedule::stage(std::int64_t* job) {
  RENAI_CHECK(consumed_ < submitted_, "a staged shard was submitted before it is used");
  *job = consumed_;
  return loader_->wait(*job);
}

void StepSchedule::transfer(int buffer, std::int64_t job, int variant) {
  const auto x = static_cast<std::size_t>(buffer);
  Stream& stream = engine_->stream(StreamId::TRANSFER);
  stream.wait(*slot_free_[x]);
  engine_->launch(variant, kTransfer[x]);
  stream.record(*transferred_[x]);
  loader_->release(job, *transferred_[x]);
  ++consumed_;
  submit_ahead();
}

void StepSchedule::merge_and_reduce(int variant, bool last_pass) {
  Stream& update = engine_->stream(StreamId::UPDATE);
  Stream& comm = engine_->stream(StreamId::COMM);
  const bool merges = engine_->has(variant, GraphId::CAST_FIRST_GRAD);
  const bool reduces = last_pass && engine_->has(variant, GraphId::FIRST_COMM);
  const int buckets = engine_->blueprint().graph.deep_buckets();
  // One order of all collectives on all ranks: those of the passes come first.
  if (reduces && engine_->blueprint().graph.options().sync_bn) comm.wait(*shard_done_);
  for (int b = 0; b < buckets; ++b) {
    Event* ready = &engine_->bucket_event(b);
    if (merges) {
      update.wait(*ready);
      engine_->launch_part(variant, GraphId::CAST_DEEP_GRAD, b);
      ready = bucket_merged_[static_cast<std::size_t>(b)].get();
      update.record(*ready);
    }
    if (reduces) {
      comm.wait(*ready);
      engine_->launch_part(variant, GraphId::DEEP_COMM, b);
    }
  }
  if (merges) {
    update.wait(*shard_done_);
    engine_->launch(variant, GraphId::CAST_FIRST_GRAD);
    update.record(*merged_);
  }
  if (reduces) {
    comm.wait(merges ? *merged_ : *shard_done_);
    engine_->launch(variant, GraphId::FIRST_COMM);
    engine_->launch(variant, GraphId::STATS_COMM);
    comm.record(*comm_done_);
  }
}

/// The parts of a graph whose freeze groups are trained in this step.
void StepSchedule::launch_groups(std::int64_t step, int variant, GraphId id) {
  const std::vector<int>& groups = part_groups_[static_cast<std::size_t>(id)];
  for (std::size_t part = 0; part < groups.size(); ++part) {
    if (!freeze_.frozen(groups[part], step / batches_)) engine_->launch_part(variant, id, static_cast<int>(part));
  }
}

/// What is frozen has no gradient, in the global norm neither, and no update.
/// The graphs of LARS touch no common bytes: linear weights are updated on COMPUTE, beside the convolutions on UPDATE.
void StepSchedule::update_weights(std::int64_t step, int variant) {
  Stream& update = engine_->stream(StreamId::UPDATE);
  const std::vector<int>& cleared = part_groups_[static_cast<std::size_t>(GraphId::ZERO_GRAD)];
  for (std::size_t part = 1; part < cleared.size(); ++part) {
    if (!freeze_.frozen(cleared[part], step / batches_)) continue;
    engine_->launch_part(variant, GraphId::ZERO_GRAD, static_cast<int>(part));
  }
  engine_->launch(variant, GraphId::NAN_CHECK_AND_GRAD_SCALING);
  const bool beside = engine_->has(variant, GraphId::LARS_FC_OPT);
  if (beside) {
    Stream& compute = engine_->stream(StreamId::COMPUTE);
    update.record(*checked_);
    compute.wait(*checked_);
    launch_groups(step, variant, GraphId::LARS_FC_OPT);
    compute.record(*fc_updated_);
  }
  launch_groups(step, variant, GraphId::LARS_FIRST_CONV_OPT);
  launch_groups(step, variant, GraphId::LARS_DEEP_CONV_OPT);
  launch_groups(step, variant, GraphId::OPTIMIZER);
  if (beside) update.wait(*fc_updated_);
}

void StepSchedule::finish_step(std::int64_t step, int variant, bool last) {
  Stream& update = engine_->stream(StreamId::UPDATE);
  update.wait(engine_->has(variant, GraphId::FIRST_COMM) ? *comm_done_ : *shard_done_);
  update_weights(step, variant);
  engine_->launch(variant, GraphId::CAST_MAIN);
  engine_->launch(variant, GraphId::UPDATE_STATS);
  engine_->launch(variant, GraphId::EMA_UPDATE);
  engine_->launch(variant, last ? GraphId::ACCUM_METRICS_TRAIN_LAST : GraphId::ACCUM_METRICS);
  update.record(*step_done_[static_cast<std::size_t>(step % kStepsInFlight)]);
}

/// Forward and backward of the next shard, or of the next micro-batch of one.
void StepSchedule::launch_pass(std::int64_t step, int variant, bool first) {
  Stream& compute = engine_->stream(StreamId::COMPUTE);
  std::int64_t job = 0;
  const int buffer = stage(&job);
  const auto x = static_cast<std::size_t>(buffer);
  if (keep_ids_) {
    const SlotLayout& slot = engine_->blueprint().slot;
    const auto* ids = reinterpret_cast<const std::int64_t*>(engine_->staging()[x] + slot.ids_offset);
    ids_.insert(ids_.end(), ids, ids + train_sampler_->rows(step % batches_));
  }
  transfer(buffer, job, variant);
  compute.wait(*transferred_[x]);
  compute.wait(first ? *zero_done_ : *merged_);
  engine_->launch(variant, kFirstForward[x]);
  engine_->launch(variant, GraphId::DEEP_FWD_BWD);
  if (!freeze_.first_layer_frozen(step / batches_)) engine_->launch(variant, kFirstBackward[x]);
  compute.record(*slot_free_[x]);
  compute.record(*shard_done_);
}

void StepSchedule::launch_step(std::int64_t step) {
  const std::int64_t batch = step % batches_;
  const bool last = train_sampler_->split().last_rows > 0 && batch == batches_ - 1;
  const int variant = engine_->blueprint().training_variant(phase_of_epoch(phases_, step / batches_), last);
  Stream& update = engine_->stream(StreamId::UPDATE);
  ids_.clear();

  engine_->launch_part(variant, GraphId::ZERO_GRAD, 0);
  update.record(*zero_done_);
  const int passes = local_shards_ * micro_batches_;
  for (int pass = 0; pass < passes; ++pass) {
    launch_pass(step, variant, pass == 0);
    merge_and_reduce(variant, pass == passes - 1);
  }
  finish_step(step, variant, last);
}

std::optional<ValidationResult> StepSchedule::validate(std::int64_t step, bool ema,
                                                       const std::function<bool()>& ends_early) {
  const Blueprint& blueprint = engine_->blueprint();
  Stream& compute = engine_->stream(StreamId::COMPUTE);
  Stream& update = engine_->stream(StreamId::UPDATE);
  Stream& comm = engine_->stream(StreamId::COMM);
  const std::int64_t batches = val_sampler_->split().batches();
  const int base = blueprint.validation_variant(false);

  engine_->launch(base, GraphId::UPDATE_BN_INF_PARAMS);
  if (ema) engine_->launch(base, GraphId::CAST_EMA);
  engine_->launch(base, GraphId::CLEAR_METRICS);
  update.record(*accumulated_);
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    if (ends_early) {
      while (batch == 1 && !accumulated_->wait_host(kHostPatience)) {
      }
      if (ends_early()) return std::nullopt;
    }
    const bool last = val_sampler_->split().last_rows > 0 && batch == batches - 1;
    const int variant = blueprint.validation_variant(last);
    for (int shard = 0; shard < local_shards_; ++shard) {
      std::int64_t job = 0;
      const int buffer = stage(&job);
      const auto x = static_cast<std::size_t>(buffer);
      transfer(buffer, job, variant);
      compute.wait(*transferred_[x]);
      compute.wait(*accumulated_);
      engine_->launch(variant, ema ? kEmaInference[x] : kInference[x]);
      compute.record(*slot_free_[x]);
      compute.record(*inference_done_);
      update.wait(*inference_done_);
      engine_->launch(variant, last ? GraphId::ACCUM_METRICS_VAL_LAST : GraphId::ACCUM_METRICS);
      update.record(*accumulated_);
    }
  }
  comm.wait(*accumulated_);
  engine_->launch(base, GraphId::VAL_RESULT_COMM);
  const Region& region = blueprint.plans.front().region(region_name::kAccumulators);
  std::byte* arena_region = engine_->arena() + region.offset_bytes;
  comm.copy(result_.data(), arena_region, region.size_bytes);
  comm.record(*result_done_);
  update.wait(*result_done_);
  while (!result_done_->wait_host(kHostPatience)) {
  }
  std::array<double, 4> total{};
  std::memcpy(total.data(), result_.data() + region_name::kAccumulatorTotal * sizeof(double), sizeof total);
  ValidationResult result;
  result.images = static_cast<std::int64_t>(total[1]);
  RENAI_CHECK(result.images == data_.val->size(),
              "validation after step " + std::to_string(step) + " counts every image once");
  result.loss = total[0] / total[1];
  result.top1_hits = total[2];
  result.top5_hits = total[3];
  result.top1 = total[2] / total[1];
  result.top5 = total[3] / total[1];
  return result;
}

bool StepSchedule::step_done(std::int64_t step) const {
  return step_done_[static_cast<std::size_t>(step % kStepsInFlight)]->ready();
}

void StepSchedule::wait_step(std::int64_t step) const {
  while (!step_done_[static_cast<std::size_t>(step % kStepsInFlight)]->wait_host(kHostPatience)) {
  }
}

}  // namespace renai
