// Shards of encoded images: digests, adoption, and the table of bad ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data_files.hpp"
#include "encoded_set.hpp"
#include "renai/base/digest.hpp"

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

const char* const kTrain = "train-00000-of-00001.h5";

/// Images of 1 to `samples` bytes: digests do not look into them.
EncodedShard some_shard(int samples) {
  EncodedShard shard;
  for (int i = 0; i < samples; ++i) {
    shard.add(i % 3, std::string(static_cast<std::size_t>(i) + 1, static_cast<char>('a' + i)));
  }
  return shard;
}

Manifest write_set(const fs::path& folder) {
  return testing::write_encoded_set(folder, some_shard(7), some_shard(2), 32, 3);
}

TEST(Encoded, TheDigestIsOverLabelsThenOffsetsThenBytes) {
  const Folder folder;
  write_set(folder / "set");
  EXPECT_THAT(message_of<DataError>([&] { verify_dataset(folder / "set"); }), HasSubstr("--adopt"));
  adopt_dataset(folder / "set");
  verify_dataset(folder / "set");
  const EncodedShard shard = some_shard(7);
  std::string content(reinterpret_cast<const char*>(shard.labels.data()), shard.labels.size() * 4);
  content.append(reinterpret_cast<const char*>(shard.offsets.data()), shard.offsets.size() * 8);
  content += shard.bytes;
  EXPECT_EQ(load_manifest(folder / "set").splits[0].shards[0].digest, hash128(content).hex());
  std::vector<std::uint64_t> digests(7);
  H5File::open(folder / ("set/" + std::string(kTrain)))
      .read("sample_digests", DType::u64, 0, 7, std::as_writable_bytes(std::span(digests)));
  for (std::size_t i = 0; i < 7; ++i) {
    const std::string image = shard.bytes.substr(shard.offsets[i], i + 1);
    EXPECT_EQ(digests[i], hash64(std::as_bytes(std::span(image)))) << i;
  }
}

TEST(Encoded, AFlippedByteIsNamedWithItsSample) {
  const Folder folder;
  write_set(folder / "set");
  adopt_dataset(folder / "set");
  const fs::path shard = folder / ("set/" + std::string(kTrain));
  std::string bytes = slurp(shard);
  bytes[static_cast<std::size_t>(H5File::open(shard).info("image_bytes").file_offset) + 12] ^= 1;  // 1+2+3+4 = 10
  spill(shard, bytes);
  EXPECT_THAT(message_of<DataError>([&] { verify_dataset(folder / "set"); }),
              AllOf(HasSubstr(kTrain), HasSubstr("bytes of sample 4")));
}

TEST(Encoded, InspectSaysHowItIsStored) {
  const Folder folder;
  write_set(folder / "set");
  EXPECT_THAT(inspect_dataset(folder / ("set/" + std::string(kTrain)), false),
              AllOf(HasSubstr("jpeg"), HasSubstr("28"), HasSubstr("directly")));
}

struct BadShard {
  const char* name;
  void (*damage)(EncodedShard&);
  const char* said;
};

class BadEncoded : public ::testing::TestWithParam<BadShard> {};

TEST_P(BadEncoded, IsRefusedWithItsReason) {
  const Folder folder;
  EncodedShard shard = some_shard(7);
  GetParam().damage(shard);
  testing::write_encoded_set(folder / "set", shard, some_shard(2), 32, 3);
  const auto expected = AllOf(HasSubstr(kTrain), HasSubstr(GetParam().said));
  EXPECT_THAT(message_of<DataError>([&] { adopt_dataset(folder / "set"); }), expected);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadEncoded,
    ::testing::Values(BadShard{"FallingOffsets", [](EncodedShard& s) { s.offsets[3] = 1; }, "sample 2"},
                      BadShard{"AnEmptyImage", [](EncodedShard& s) { s.offsets[4] = s.offsets[3]; }, "sample 3"},
                      BadShard{"AnOffsetPastTheEnd", [](EncodedShard& s) { s.offsets[7] = 1u << 20; }, "sample 6"},
                      BadShard{"AnOffsetPast63Bits", [](EncodedShard& s) { s.offsets[7] = ~std::uint64_t{0}; },
                               "sample 6"},
                      BadShard{"BytesOfNoImage", [](EncodedShard& s) { s.bytes += "x"; }, "end at byte 28 of 29"},
                      BadShard{"TooFewOffsets", [](EncodedShard& s) { s.offsets.pop_back(); }, "7 offsets"},
                      BadShard{"ALaterStart", [](EncodedShard& s) { s.offsets[0] = 1; }, "does not begin at byte 0"}),
    [](const auto& row) { return row.param.name; });

TEST(Encoded, TheManifestsEncodingMustFit) {
  const Folder folder;
  Manifest manifest = write_set(folder / "set");
  manifest.encoding = "raw";
  save_manifest(manifest, folder / "set");
  EXPECT_THAT(message_of<DataError>([&] { Dataset::open(folder / "set", "train"); }),
              AllOf(HasSubstr("'jpeg'"), HasSubstr("'raw'")));
}

}  // namespace
}  // namespace renai
