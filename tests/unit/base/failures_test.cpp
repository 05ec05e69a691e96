// Errors of several files told together.
#include "renai/base/failures.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace renai {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Throws;
using ::testing::ThrowsMessage;

const auto kSound = [] {};
const auto kDamaged = [] { throw DataError("file a", "it is damaged", "make it again"); };
const auto kUnreadable = [] { throw ResourceError("file b", "the disk is bad", "check the disk"); };

TEST(Failures, NothingFailed) {
  Failures failures;
  failures.raise("all", "files");
  failures.collect(kSound);
  failures.raise("all", "files");
}

TEST(Failures, OneIsToldAsItIs) {
  Failures failures;
  failures.collect(kUnreadable);
  failures.collect(kSound);
  EXPECT_THAT([&] { failures.raise("all", "files"); },
              ThrowsMessage<ResourceError>("file b; the disk is bad; check the disk"));
}

TEST(Failures, DamageAmongThemIsDamage) {
  Failures failures;
  for (int i = 0; i < 2; ++i) failures.collect(kUnreadable);
  failures.collect(kSound);
  EXPECT_THAT([&] { failures.raise("all", "files"); }, Throws<ResourceError>());
  failures.collect(kDamaged);
  EXPECT_THAT([&] { failures.raise("all", "files"); },
              ThrowsMessage<DataError>(
                  AllOf(HasSubstr("all; 3 of 4 files failed"), HasSubstr("\n  file a: it is damaged"),
                        HasSubstr("\n  file b: the disk is bad"), HasSubstr("; check the disk, or make it again"))));
}

TEST(Failures, OtherErrorsEndTheLook) {
  Failures failures;
  EXPECT_THROW(failures.collect([] { throw UserError("option", "it is wrong", "correct it"); }), UserError);
}

}  // namespace
}  // namespace renai
