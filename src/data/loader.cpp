#include "renai/data/loader.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <vector>

#include "renai/base/check.hpp"
#include "renai/base/error.hpp"
#include "renai/base/thread.hpp"
#include "sample_stager.hpp"

namespace renai {
namespace {

/// How long a thread waits for the device before it looks whether the loader is being destroyed.
constexpr std::chrono::milliseconds kLook{20};
/// Rows handed out at once: many enough that the lock is not felt and neighbours are read together, and fewer towards
/// the end of a job, so that no thread works alone on its last rows. Contents do not depend on it.
constexpr std::int64_t kMostBlockRows = SampleStager::kMostRows;

enum class Stage { queued, opening, filling, staged };

struct Entry {
  ShardJob job;
  Stage stage = Stage::queued;
  std::int64_t rows = 0, next_row = 0, rows_done = 0, valid_rows = 0;
  std::exception_ptr failure;
  std::int64_t failed_row = 0;
  std::chrono::steady_clock::time_point opened;  ///< When its buffer was free: from then on waiting is for data.
};

/// The parts of a staging buffer, typed.
struct Slot {
  std::byte* base;
  const SlotLayout* layout;

  template <typename T>
  T* part(std::int64_t offset_bytes) const {
    return reinterpret_cast<T*>(base + offset_bytes);
  }
  std::int32_t* labels() const { return part<std::int32_t>(layout->labels_offset); }
  std::int64_t* ids() const { return part<std::int64_t>(layout->ids_offset); }
  float* weights() const { return part<float>(layout->weights_offset); }
  SampleParams* params() const { return part<SampleParams>(layout->params_offset); }
  std::span<std::byte> image(std::int64_t row) const {
    const std::int64_t size_bytes = layout->h * layout->w * layout->c;
    return {base + layout->images_offset + row * size_bytes, static_cast<std::size_t>(size_bytes)};
  }
};

}  // namespace

struct Loader::Impl {
  LoaderConfig config;
  alignas(64) mutable std::mutex mutex;  ///< Apart from what threads read for every sample.
  std::condition_variable work, staged;
  std::array<Entry, kQueueDepth> ring;
  std::array<const Event*, 2> copied{};  ///< By buffer: the event that frees it; null: free at once.
  std::int64_t submitted = 0, released = 0;
  std::int64_t current = 0;  ///< The job whose rows are handed out; all earlier ones have been handed out.
  bool stopping = false;
  std::chrono::nanoseconds waited{0};
  std::vector<std::unique_ptr<SampleStager>> stagers;  ///< One a thread.
  ThreadGroup threads{[this] { stop(); }};             ///< Last: what they use outlives them.

  explicit Impl(const LoaderConfig& given) : config(given) {}
  Entry& entry(std::int64_t k) { return ring[static_cast<std::size_t>(k % kQueueDepth)]; }
  Slot slot(std::int64_t k) const { return {config.staging[static_cast<std::size_t>(k % 2)], &config.layout}; }

  void run(SampleStager& stager);
  void stop() noexcept;
  bool can_open() { return current < submitted && entry(current).stage == Stage::queued && released + 2 > current; }
  bool can_fill() { return current < submitted && entry(current).stage == Stage::filling; }
  void open(std::unique_lock<std::mutex>& lock);
  void fill_block(SampleStager& stager, std::unique_lock<std::mutex>& lock);
  std::int64_t fill_rows(SampleStager& stager, const ShardJob& job, const Slot& slot, std::int64_t first,
                         std::int64_t end, std::int64_t* row) const;
  void finish(std::int64_t k);
};

/// Waits until the copy out of the buffer is over, without the lock; then hands out the job's rows.
void Loader::Impl::open(std::unique_lock<std::mutex>& lock) {
  const std::int64_t k = current;
  Entry& job = entry(k);
  job.stage = Stage::opening;
  const Event* event = copied[static_cast<std::size_t>(k % 2)];
  lock.unlock();
  std::exception_ptr failure;
  bool free = event == nullptr;
  bool stop = false;
  while (!free && !stop) {
    try {
      free = event->wait_background(kLook);
    } catch (...) {
      failure = std::current_exception();
      free = true;
    }
    const std::lock_guard<std::mutex> look(mutex);
    stop = stopping;
  }
  lock.lock();
  if (!free) return;
  if (failure) {
    job.failure = failure;
    job.next_row = job.rows_done = job.rows;
    ++current;
    finish(k);
  } else {
    job.stage = Stage::filling;
    job.opened = std::chrono::steady_clock::now();
  }
  work.notify_all();
}

/// Fills rows [first, end); `*row` is the row at work, for the report of a failure. Returns how many are no padding.
std::int64_t Loader::Impl::fill_rows(SampleStager& stager, const ShardJob& job, const Slot& to, std::int64_t first,
                                     std::int64_t end, std::int64_t* row) const {
  const SlotLayout& layout = config.layout;
  const Augmentation none;
  const bool training = job.control.phase == 0;
  const std::int64_t rows = job.sampler->rows(job.batch);
  const std::int64_t h = job.h > 0 ? job.h : layout.h, w = job.w > 0 ? job.w : layout.w;
  const ShardMix mix =
      draw_mix(training ? config.mixing : Mixing{}, rows, h, w, config.seed, job.control.step, job.shard);
  std::array<std::int64_t, kMostBlockRows> ids{};
  const auto samples = std::span(ids).first(static_cast<std::size_t>(end - first));
  job.sampler->samples(job.epoch, job.batch, job.shard, first, samples);
  stager.begin(job, samples, {to.image(first).data(), samples.size() * to.image(first).size()});
  std::int64_t valid = 0;
  for (*row = first; *row < end; ++*row) {
    const std::int64_t r = *row;
    const auto place = static_cast<std::size_t>(r - first);
    const std::int64_t sample = samples[place];
    const std::span<std::byte> image = to.image(r);
    to.ids()[r] = sample;
    if (sample < 0) {
      to.labels()[r] = 0;
      to.weights()[r] = 0.0f;
      to.params()[r] = draw_params(none, layout.h, layout.w, 0, 0, 0);
      std::memset(image.data(), 0, image.size());
      continue;
    }
    ++valid;
    to.labels()[r] = job.dataset->label(sample);
    to.weights()[r] = 1.0f;
    stager.stage(job, place, sample, to.params()[r], image);
    if (training) to.params()[r].erase_box = draw_erasing(config.erasing, h, w, config.seed, job.epoch, sample);
    apply_mix(mix, rows, r, to.params()[r]);
  }
  return valid;
}

void Loader::Impl::fill_block(SampleStager& stager, std::unique_lock<std::mutex>& lock) {
  const std::int64_t k = current;
  Entry& job = entry(k);
  const std::int64_t first = job.next_row;
  const std::int64_t share = (job.rows - first) / (2 * config.threads) + 1;
  const std::int64_t end = std::min(job.rows, first + std::min(share, kMostBlockRows));
  job.next_row = end;
  if (end == job.rows) {
    ++current;
    work.notify_all();  // The next job may be opened while the last rows of this one are on their way.
  }
  lock.unlock();
  std::int64_t row = first, valid = 0;
  std::exception_ptr failure;
  try {
    valid = fill_rows(stager, job.job, slot(k), first, end, &row);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  // The first row's failure is the one reported, whichever thread was faster.
  if (failure && (!job.failure || row < job.failed_row)) {
    job.failure = failure;
    job.failed_row = row;
  }
  job.valid_rows += valid;
  job.rows_done += end - first;
  if (job.rows_done == job.rows) finish(k);
}

/// Under the lock: completes the buffer of job k and wakes who waits for it.
void Loader::Impl::finish(std::int64_t k) {
  Entry& job = entry(k);
  const Slot to = slot(k);
  job.job.control.rows = static_cast<std::int32_t>(job.rows);
  job.job.control.valid_rows = static_cast<std::int32_t>(job.valid_rows);
  std::memcpy(to.base + config.layout.control_offset, &job.job.control, sizeof(ControlBlock));
  job.stage = Stage::staged;
  staged.notify_all();
}

void Loader::Impl::run(SampleStager& stager) {
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    work.wait(lock, [this] { return stopping || can_open() || can_fill(); });
    if (stopping) return;
    if (can_open()) {
      open(lock);
    } else {
      fill_block(stager, lock);
    }
  }
}

Loader::Loader(const LoaderConfig& config) : impl_(std::make_unique<Impl>(config)) {
  if (config.threads < 1) {
    throw UserError(config.threads_option + " " + std::to_string(config.threads), "at least one thread is needed",
                    "use 1 or more");
  }
  RENAI_CHECK(config.staging[0] != nullptr && config.staging[1] != nullptr, "both staging buffers exist");
  for (int i = 0; i < config.threads; ++i) impl_->stagers.push_back(std::make_unique<SampleStager>(impl_->config));
  for (int i = 0; i < config.threads; ++i) {
    impl_->threads.start("loader thread " + std::to_string(i), config.threads_option,
                         [impl = impl_.get(), i] { impl->run(*impl->stagers[static_cast<std::size_t>(i)]); });
  }
}

Loader::~Loader() = default;

void Loader::Impl::stop() noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  work.notify_all();
}

std::int64_t Loader::submit(const ShardJob& job) {
  RENAI_CHECK(job.dataset != nullptr && job.sampler != nullptr, "a job names its data set and sampler");
  const SlotLayout& layout = impl_->config.layout;
  const Manifest& manifest = job.dataset->manifest();
  const bool encoded = job.dataset->encoded();
  RENAI_CHECK(!encoded || (job.h > 0 && job.w > 0), "the network's input is known where images differ in size");
  if ((!encoded && (manifest.height != layout.h || manifest.width != layout.w)) || manifest.channels != layout.c) {
    throw DataError("data set " + job.dataset->directory().string(),
                    "its images are " + std::to_string(manifest.height) + "x" + std::to_string(manifest.width) + "x" +
                        std::to_string(manifest.channels) + ", the staging buffers are made for " + layout.str(),
                    "training and validation sets need images of one size");
  }
  const std::int64_t rows = job.sampler->rows(job.batch);
  RENAI_CHECK(rows >= 1 && rows <= layout.rows, "a shard fits its staging buffer");
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  RENAI_CHECK(impl_->submitted - impl_->released < kQueueDepth, "the queue has a free place");
  const std::int64_t k = impl_->submitted++;
  Entry& entry = impl_->entry(k);
  entry = Entry{};
  entry.job = job;
  entry.rows = rows;
  impl_->work.notify_all();
  return k;
}

int Loader::wait(std::int64_t k) {
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock<std::mutex> lock(impl_->mutex);
  RENAI_CHECK(k >= impl_->released && k < impl_->submitted, "the job was submitted and not yet released");
  Entry& entry = impl_->entry(k);
  impl_->staged.wait(lock, [&entry] { return entry.stage == Stage::staged; });
  const auto now = std::chrono::steady_clock::now();
  impl_->waited += std::max(now - std::max(start, entry.opened), std::chrono::steady_clock::duration::zero());
  if (entry.failure) std::rethrow_exception(entry.failure);
  return static_cast<int>(k % 2);
}

void Loader::release(std::int64_t k, const Event& copied) {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  RENAI_CHECK(k == impl_->released && k < impl_->submitted && impl_->entry(k).stage == Stage::staged,
              "jobs are released in order, once each, after they were staged");
  impl_->copied[static_cast<std::size_t>(k % 2)] = &copied;
  ++impl_->released;
  impl_->work.notify_all();
}

ReadCounts Loader::counts() const {
  ReadCounts all;
  for (const auto& stager : impl_->stagers) {
    const ReadCounts own = stager->counts();
    all.reads += own.reads;
    all.samples += own.samples;
  }
  return all;
}

std::chrono::nanoseconds Loader::waited() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->waited;
}

}  // namespace renai
