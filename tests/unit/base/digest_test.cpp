// Digests: known hashes, dependence on position, independence of how the work is divided.
#include "renai/base/digest.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <thread>
#include <vector>

#include "renai/base/philox.hpp"

namespace renai {
namespace {

std::vector<float> random_values(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = uniform01(random_block(3, RandomPurpose::test, i, 0)[0]) - 0.5f;
  return values;
}

Digest128 sum(const Digest128& a, const Digest128& b) { return {a.low + b.low, a.high + b.high}; }

TEST(Hash, KnownAnswersOfXxh3) {
  EXPECT_EQ(hash64(std::string_view{}), 0x2d06800538d394c2u);
  EXPECT_EQ(hash128(std::string_view{}).hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash, SeedAndEveryByteMatter) {
  EXPECT_NE(hash64("renai"), hash64("renai", 1));
  EXPECT_NE(hash64("renai"), hash64("renaj"));
  EXPECT_NE(hash128("renai"), hash128("renaj"));
  EXPECT_EQ(hash64("renai"), hash64(std::as_bytes(std::span("renai", 5))));
}

TEST(TensorDigest, IsTheSumOfTheElements) {
  const std::vector<float> values = random_values(257);
  Digest128 expected;
  for (std::size_t i = 0; i < values.size(); ++i) {
    expected = sum(expected, element_digest(std::bit_cast<std::uint32_t>(values[i]), 1000 + i));
  }
  EXPECT_EQ(tensor_digest(values, 1000), expected);
}

TEST(TensorDigest, DoesNotDependOnHowTheWorkIsDivided) {
  const std::vector<float> values = random_values(10007);
  const Digest128 whole = tensor_digest(values);
  for (const std::size_t threads : {2u, 3u, 5u, 8u}) {
    std::vector<Digest128> parts(threads);
    std::vector<std::thread> workers;
    for (std::size_t t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        const std::size_t begin = values.size() * t / threads;
        const std::size_t end = values.size() * (t + 1) / threads;
        parts[t] = tensor_digest(std::span(values).subspan(begin, end - begin), begin);
      });
    }
    for (std::thread& worker : workers) worker.join();
    Digest128 total;
    for (const Digest128& part : parts) total = sum(total, part);
    EXPECT_EQ(total, whole) << threads << " threads";
  }
}

TEST(TensorDigest, EveryBitOfEveryElementMatters) {
  std::vector<float> values = random_values(64);
  const Digest128 whole = tensor_digest(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (unsigned bit = 0; bit < 32; ++bit) {
      const float kept = values[i];
      values[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(kept) ^ (1u << bit));
      const Digest128 changed = tensor_digest(values);
      EXPECT_NE(changed.low, whole.low) << "element " << i << " bit " << bit;
      EXPECT_NE(changed.high, whole.high) << "element " << i << " bit " << bit;
      values[i] = kept;
    }
  }
}

TEST(TensorDigest, DependsOnPosition) {
  std::vector<float> values = random_values(64);
  const Digest128 whole = tensor_digest(values);
  EXPECT_NE(tensor_digest(values, 1), whole);
  std::swap(values[3], values[40]);
  EXPECT_NE(tensor_digest(values), whole);
}

TEST(TensorDigest, TellsZerosFromNothingAndFromEachOther) {
  EXPECT_EQ(tensor_digest({}), Digest128{});
  const std::vector<float> one{0.0f};
  const std::vector<float> two{0.0f, 0.0f};
  const std::vector<float> negative{-0.0f};
  EXPECT_NE(tensor_digest(one), Digest128{});
  EXPECT_NE(tensor_digest(one), tensor_digest(two));
  EXPECT_NE(tensor_digest(one), tensor_digest(negative));
}

TEST(CombineDigests, DependsOnOrderAndCount) {
  const Digest128 a = hash128("a");
  const Digest128 b = hash128("b");
  const std::vector<Digest128> ab{a, b};
  const std::vector<Digest128> ba{b, a};
  const std::vector<Digest128> aab{a, a, b};
  EXPECT_NE(combine_digests(ab), combine_digests(ba));
  EXPECT_NE(combine_digests(ab), combine_digests(aab));
  EXPECT_EQ(combine_digests(ab), combine_digests(std::vector<Digest128>{a, b}));
}

TEST(Digest, HexPrintsTheHighWordFirst) {
  EXPECT_EQ((Digest128{0x0123456789abcdef, 0xfedcba9876543210}.hex()), "fedcba98765432100123456789abcdef");
}

}  // namespace
}  // namespace renai
