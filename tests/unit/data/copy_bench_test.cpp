// bench_copy: what is counted.
#include "renai/data/copy_bench.hpp"

#include <gtest/gtest.h>

#include "renai/device/host.hpp"

namespace renai {
namespace {

TEST(CopyBench, CountsImagesAndBytesOfWholeBuffers) {
  const std::unique_ptr<Device> device = make_host_device();
  const StageRate rate = bench_copy(*device, 3 * 4096, 3, 0.05);
  EXPECT_EQ(rate.name, "copy");
  EXPECT_GE(rate.seconds, 0.05);
  EXPECT_GT(rate.images_per_second, 0);
  EXPECT_DOUBLE_EQ(rate.bytes_per_second / rate.images_per_second, 4096);
  EXPECT_EQ(rate.limit, "memory");
}

TEST(CopyBench, TheSlowestOfStagingAndCopyingCounts) {
  DataBench bench;
  EXPECT_EQ(bench.images_per_second(), 0);
  const auto add = [&bench](const char* name, double images) {
    StageRate& stage = bench.stages.emplace_back();
    stage.name = name;
    stage.images_per_second = images;
  };
  add("read", 1);
  add("stage", 5);
  EXPECT_EQ(bench.images_per_second(), 5);
  add("copy", 7);
  EXPECT_EQ(bench.images_per_second(), 5);
  bench.stages.back().images_per_second = 2;
  EXPECT_EQ(bench.images_per_second(), 2);
}

}  // namespace
}  // namespace renai
