// Loader over a set of JPEG images: what it stages, independent of threads; damaged images and flipped bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "data_files.hpp"
#include "encoded_set.hpp"
#include "renai/base/digest.hpp"
#include "renai/data/jpeg.hpp"
#include "renai/data/loader.hpp"
#include "renai/device/host.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::EncodedShard;
using testing::Folder;
using ::testing::HasSubstr;
using testing::message_of;
using testing::slurp;
using testing::spill;

constexpr std::int64_t kNetwork = 24, kExtent = staged_extent(kNetwork);
const char* const kTrain = "train-00000-of-00001.h5";

/// An event that is always reached.
class Reached : public Event {
 public:
  bool ready() const override { return true; }
  bool wait_host(std::chrono::milliseconds) const override { return true; }
  bool wait_background(std::chrono::milliseconds) const override { return true; }
  double microseconds_since(const Event&) const override { return 0.0; }
};

EncodedShard golden_images(int samples) {
  const H5File golden = H5File::open(std::string(RENAI_GOLDEN_DIR) + "/jpeg.h5");
  const std::vector<std::string> names = golden.children("/");
  EncodedShard shard;
  for (int i = 0; i < samples; ++i) {
    const std::string dataset = names[static_cast<std::size_t>(i) % names.size()] + "/bytes";
    std::string image(static_cast<std::size_t>(golden.info(dataset).extents[0]), '\0');
    golden.read(dataset, DType::u8, 0, static_cast<std::int64_t>(image.size()),
                std::as_writable_bytes(std::span(image)));
    shard.add(i % 3, image);
  }
  return shard;
}

class EncodedLoader : public ::testing::Test {
 protected:
  void write(const EncodedShard& shard) {
    testing::write_encoded_set(folder / "set", shard, golden_images(11), kNetwork, 3);
    open();
  }
  void open() {
    train.emplace(Dataset::open(folder / "set", "train"));
    val.emplace(Dataset::open(folder / "set", "val"));
    train_sampler.emplace(SamplerConfig{train->size(), 16, 2, 5, true});
    val_sampler.emplace(SamplerConfig{val->size(), 16, 2, 5, false});
  }
  LoaderConfig config(int threads, const std::string& augment) {
    LoaderConfig c;
    c.layout = layout;
    c.staging = {buffers[0].data(), buffers[1].data()};
    c.threads = threads;
    c.augmentation = Augmentation::parse(augment);
    c.seed = 77;
    return c;
  }
  ShardJob job(bool training, std::int64_t epoch, std::int64_t batch, int shard) {
    ShardJob j;
    j.dataset = training ? &*train : &*val;
    j.sampler = training ? &*train_sampler : &*val_sampler;
    j.epoch = epoch;
    j.batch = batch;
    j.shard = shard;
    j.h = j.w = kNetwork;
    j.control.phase = training ? 0 : 1;
    return j;
  }
  template <typename T>
  const T* part(int buffer, std::int64_t offset_bytes) const {
    return reinterpret_cast<const T*>(buffers[static_cast<std::size_t>(buffer)].data() + offset_bytes);
  }
  std::vector<std::string> run_all(int threads) {
    std::vector<ShardJob> jobs;
    for (std::int64_t batch = 0; batch < train_sampler->split().batches(); ++batch) {
      for (int shard = 0; shard < 2; ++shard) jobs.push_back(job(true, 1, batch, shard));
    }
    for (int shard = 0; shard < 2; ++shard) jobs.push_back(job(false, 1, 0, shard));
    for (Buffer& buffer : buffers) std::memset(buffer.data(), 0, static_cast<std::size_t>(buffer.size_bytes()));
    Loader loader(config(threads, "resized-crop,flip,colour"));
    std::vector<std::string> digests;
    for (const ShardJob& one : jobs) {
      const std::int64_t k = loader.submit(one);
      const auto buffer = static_cast<std::size_t>(loader.wait(k));
      digests.push_back(hash128({buffers[buffer].data(), static_cast<std::size_t>(layout.size_bytes)}).hex());
      loader.release(k, reached);
    }
    return digests;
  }
  std::string failure_of(const std::string& augment = "none") {
    return message_of<DataError>([&] {
      Loader loader(config(2, augment));
      for (std::int64_t batch = 0; batch < train_sampler->split().batches(); ++batch) {
        for (int shard = 0; shard < 2; ++shard) {
          const std::int64_t k = loader.submit(job(true, 0, batch, shard));
          loader.wait(k);
          loader.release(k, reached);
        }
      }
    });
  }

  Folder folder;
  Reached reached;
  SlotLayout layout = SlotLayout::make(8, kExtent, kExtent, 3);
  std::unique_ptr<Device> device = make_host_device();
  std::array<Buffer, 2> buffers{device->allocate_pinned(layout.size_bytes), device->allocate_pinned(layout.size_bytes)};
  std::optional<Dataset> train, val;
  std::optional<Sampler> train_sampler, val_sampler;
};

TEST_F(EncodedLoader, StagesTheSameForAnyNumberOfThreads) {
  write(golden_images(51));
  const auto one = run_all(1);
  EXPECT_EQ(one.size(), 4u * 2 + 2);
  EXPECT_EQ(run_all(3), one);
  EXPECT_EQ(run_all(16), one);
}

/// Staged: the region that is drawn in the image as it is to be seen, and no more than that.
TEST_F(EncodedLoader, RowsAreTheDrawnRegions) {
  write(golden_images(51));
  Loader loader(config(2, "resized-crop,flip,colour"));
  JpegDecoder decoder;
  for (const bool training : {true, false}) {
    const std::int64_t k = loader.submit(job(training, 3, 0, 1));
    const int x = loader.wait(k);
    const Dataset& set = training ? *train : *val;
    for (std::int64_t row = 0; row < 3; ++row) {
      const std::int64_t sample = part<std::int64_t>(x, layout.ids_offset)[row];
      ASSERT_GE(sample, 0);
      EXPECT_EQ(part<std::int32_t>(x, layout.labels_offset)[row], sample % 3);
      std::vector<std::byte> image(static_cast<std::size_t>(set.stored_bytes(sample)));
      set.read(sample, image);
      const ImageSize size = decoder.open(image);
      const Augmentation augmentation = Augmentation::parse("resized-crop,flip,colour");
      const SampleParams drawn = draw_params(augmentation, size.h, size.w, 77, 3, sample);
      const PixelBox box = training ? PixelBox{drawn.crop_y, drawn.crop_x, drawn.crop_h, drawn.crop_w}
                                    : centre_box(0.875, true, size.h, size.w);
      std::vector<std::byte> wanted(static_cast<std::size_t>(kExtent * kExtent * 3));
      const ImageSize region = decoder.decode(box, {kNetwork, kNetwork, kExtent, kExtent}, wanted.data(), kExtent * 3);
      const SampleParams& params = part<SampleParams>(x, layout.params_offset)[row];
      EXPECT_EQ((PixelBox{params.crop_y, params.crop_x, params.crop_h, params.crop_w}),
                (PixelBox{0, 0, region.h, region.w}));
      EXPECT_EQ(params.flip, training ? drawn.flip : 0);
      EXPECT_EQ(params.colour, training ? 1 : 0);
      for (std::int64_t y = 0; y < region.h; ++y) {
        const std::int64_t at = (row * kExtent + y) * kExtent * 3;
        EXPECT_EQ(std::memcmp(part<std::byte>(x, layout.images_offset) + at, wanted.data() + y * kExtent * 3,
                              static_cast<std::size_t>(region.w * 3)),
                  0);
      }
    }
    loader.release(k, reached);
  }
}

TEST_F(EncodedLoader, ADamagedImageIsNamed) {
  EncodedShard shard = golden_images(20), damaged;
  for (std::int64_t i = 0; i < shard.samples(); ++i) {
    const std::uint64_t begin = shard.offsets[static_cast<std::size_t>(i)];
    std::string image = shard.bytes.substr(begin, shard.offsets[static_cast<std::size_t>(i) + 1] - begin);
    if (i == 13) image.resize(image.size() * 2 / 3);
    damaged.add(shard.labels[static_cast<std::size_t>(i)], image);
  }
  write(damaged);
  EXPECT_THAT(failure_of(), AllOf(HasSubstr(kTrain), HasSubstr("sample 13"), HasSubstr("Premature end")));
}

TEST_F(EncodedLoader, AFlippedByteIsFoundWhereDigestsAreChecked) {
  write(golden_images(20));
  EXPECT_THAT(message_of<DataError>([&] { train->check_digests(); }), AllOf(HasSubstr(kTrain), HasSubstr("--adopt")));
  adopt_dataset(folder / "set");
  const fs::path shard = folder / ("set/" + std::string(kTrain));
  const auto begin = static_cast<std::size_t>(H5File::open(shard).info("image_bytes").file_offset);
  const EncodedShard images = golden_images(20);
  // Within a table of the header's, whose change gives other pixels and no complaint.
  const std::size_t at = images.bytes.find("\xFF\xDB", images.offsets[6]) + 20;
  std::string bytes = slurp(shard);
  bytes[begin + at] ^= 1;
  spill(shard, bytes);
  open();
  train->check_digests();
  EXPECT_THAT(failure_of(), AllOf(HasSubstr(kTrain), HasSubstr("sample 6"), HasSubstr("digest")));
}

TEST_F(EncodedLoader, ATruncatedShardIsFoundAtOnce) {
  write(golden_images(20));
  const fs::path shard = folder / ("set/" + std::string(kTrain));
  fs::resize_file(shard, fs::file_size(shard) - 50);
  EXPECT_THAT(message_of<DataError>([&] { open(); }), HasSubstr(kTrain));
}

TEST(VerifyAugmentation, RefusesWhatTheSetCannotDo) {
  Manifest manifest;
  manifest.encoding = "jpeg";
  manifest.channels = 3;
  verify_augmentation(Augmentation::parse("resized-crop,flip,colour"), manifest);
  EXPECT_THAT(message_of<UserError>([&] { verify_augmentation(Augmentation::parse("crop4"), manifest); }),
              HasSubstr("resized-crop"));
  manifest.encoding = "raw";
  verify_augmentation(Augmentation::parse("crop4,colour"), manifest);
  manifest.channels = 1;
  EXPECT_THAT(message_of<UserError>([&] { verify_augmentation(Augmentation::parse("colour"), manifest); }),
              HasSubstr("1 channel"));
}

}  // namespace
}  // namespace renai
