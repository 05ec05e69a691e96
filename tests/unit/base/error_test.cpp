// Errors: exit codes, message form, and what checks, refusals and handles do.
#include "renai/base/error.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "renai/base/check.hpp"
#include "renai/base/handle.hpp"
#include "renai/base/support.hpp"

namespace renai {
namespace {

template <typename E>
void expect_exit_code(int code, const std::string& name) {
  try {
    throw E("opening 'x'", "it is missing", "pack it");
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), code);
    EXPECT_EQ(error_kind_name(error.kind()), name);
    EXPECT_STREQ(error.what(), "opening 'x'; it is missing; pack it");
    EXPECT_EQ(error.failed(), "opening 'x'");
    EXPECT_EQ(error.why(), "it is missing");
    EXPECT_EQ(error.remedy(), "pack it");
    EXPECT_NE(std::string(error.where().file_name()).find("error_test.cpp"), std::string::npos);
  }
}

TEST(Error, EachKindHasItsExitCode) {
  expect_exit_code<UserError>(2, "UserError");
  expect_exit_code<DataError>(3, "DataError");
  expect_exit_code<ResourceError>(4, "ResourceError");
  expect_exit_code<BackendError>(5, "BackendError");
  expect_exit_code<PeerError>(6, "PeerError");
  expect_exit_code<InternalError>(70, "InternalError");
}

TEST(Error, EmptyPartsLeaveNoSeparators) {
  EXPECT_STREQ(UserError("a", "b").what(), "a; b");
  EXPECT_STREQ(UserError("a", "", "c").what(), "a; c");
  EXPECT_STREQ(UserError("a", "").what(), "a");
}

TEST(Check, ThrowsWithExpressionAndPlace) {
  EXPECT_NO_THROW(RENAI_CHECK(1 + 1 == 2, "arithmetic"));
  try {
    RENAI_CHECK(1 + 1 == 3, "arithmetic");
    FAIL() << "the check did not throw";
  } catch (const InternalError& error) {
    EXPECT_EQ(error.failed(), "arithmetic");
    EXPECT_NE(error.why().find("1 + 1 == 3"), std::string::npos);
    EXPECT_NE(error.why().find("error_test.cpp"), std::string::npos);
  }
}

TEST(Support, IsTrueOnlyWithoutReason) {
  EXPECT_TRUE(Support::ok());
  EXPECT_FALSE(Support::refuse("groups"));
  EXPECT_EQ(Support::refuse("groups").reason(), "groups");
}

std::vector<int>& released() {
  static std::vector<int> values;
  return values;
}
struct Record {
  void operator()(int value) const { released().push_back(value); }
};
using TestHandle = Handle<int, Record, -1>;

TEST(Handle, ReleasesOnceInAllPaths) {
  released().clear();
  {
    TestHandle a(1);
    TestHandle b(std::move(a));
    EXPECT_EQ(b.get(), 1);
    TestHandle c(2);
    c = std::move(b);
    EXPECT_EQ(released(), std::vector<int>{2});
    EXPECT_TRUE(c);
    TestHandle d(3);
    EXPECT_EQ(d.release(), 3);
    d.reset();
    EXPECT_FALSE(d);
    const TestHandle nothing;
    EXPECT_FALSE(nothing);
  }
  EXPECT_EQ(released(), (std::vector<int>{2, 1}));
}

TEST(Handle, SelfMoveKeepsTheValue) {
  released().clear();
  TestHandle a(5);
  TestHandle& same = a;
  a = std::move(same);
  EXPECT_EQ(a.get(), 5);
  EXPECT_TRUE(released().empty());
}

}  // namespace
}  // namespace renai
