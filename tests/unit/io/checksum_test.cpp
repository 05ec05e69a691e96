// Checksum128 against one-shot hashing.
#include "renai/io/checksum.hpp"

#include <gtest/gtest.h>

#include <string>

namespace renai {
namespace {

TEST(Checksum, EqualsTheHashOfTheWhole) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += static_cast<char>(i * 7 + i / 251);
  const auto bytes = std::as_bytes(std::span(text));
  Checksum128 checksum;
  for (std::size_t at = 0, part = 1; at < bytes.size(); at += part, part = part * 3 % 4099 + 1) {
    part = std::min(part, bytes.size() - at);
    checksum.update(bytes.subspan(at, part));
  }
  EXPECT_EQ(checksum.digest(), hash128(bytes));
  EXPECT_NE(checksum.digest(), hash128(bytes.first(bytes.size() - 1)));
}

TEST(Checksum, GoesOnAfterADigest) {
  Checksum128 checksum;
  EXPECT_EQ(checksum.digest(), hash128(std::string_view{}));
  const std::string text = "abc";
  checksum.update(std::as_bytes(std::span(text)));
  EXPECT_EQ(checksum.digest(), hash128(text));
}

}  // namespace
}  // namespace renai
