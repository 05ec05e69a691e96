#include "renai/plan/compile_spec.hpp"

#include <gtest/gtest.h>

#include "renai/base/error.hpp"

namespace renai {
namespace {

SpecRequest request_of(std::int64_t train, std::int64_t val, std::int64_t batch,
                       std::vector<ResolutionPhase> phases = {{28, 0}}) {
  SpecRequest request;
  request.train_samples = train;
  request.val_samples = val;
  request.global_batch = batch;
  request.resolutions = std::move(phases);
  return request;
}

std::vector<std::string> names(const std::vector<CompileSpec>& specs) {
  std::vector<std::string> list;
  for (const CompileSpec& spec : specs) list.push_back(spec.name);
  return list;
}

TEST(CompileSpec, DefaultIsSixVariants) {
  const auto specs = make_specs(request_of(60000, 10000, 128));
  EXPECT_EQ(names(specs), (std::vector<std::string>{"train_base", "train_last", "train_lowres", "train_lowres_last",
                                                    "val_base", "val_last"}));
  // 60000 = 468 * 128 + 96; 10000 = 78 * 128 + 16.
  EXPECT_EQ(specs[0].shape, (ShapeId{16, 28, 28, 1}));
  EXPECT_EQ(specs[1].shape, (ShapeId{12, 28, 28, 1}));
  EXPECT_EQ(specs[2].shape, specs[0].shape);
  EXPECT_EQ(specs[3].shape, specs[1].shape);
  EXPECT_EQ(specs[4].shape, (ShapeId{16, 28, 28, 1}));
  EXPECT_EQ(specs[5].shape, (ShapeId{2, 28, 28, 1}));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(specs[i].last, i % 2 == 1);
    EXPECT_EQ(specs[i].kind, i < 4 ? VariantKind::training : VariantKind::validation);
  }
}

TEST(CompileSpec, EveryPhaseHasTwoVariants) {
  SpecRequest request = request_of(1000, 100, 64, {{16, 0}, {24, 2}, {16, 4}, {32, 5}});
  request.val_resolution = 40;
  request.val_global_batch = 32;
  const auto specs = make_specs(request);
  EXPECT_EQ(names(specs),
            (std::vector<std::string>{"train_base", "train_last", "train_lowres", "train_lowres_last", "train_res3",
                                      "train_res3_last", "train_res4", "train_res4_last", "val_base", "val_last"}));
  EXPECT_EQ(specs[4].shape, specs[0].shape) << "equal sizes give equal ids";
  EXPECT_EQ(specs[6].shape.h, 32);
  EXPECT_EQ(specs[8].shape, (ShapeId{4, 40, 40, 1}));
  EXPECT_EQ(specs[9].shape.n, 1) << "100 = 3 * 32 + 4, spread over 8 shards, rounded up";
}

TEST(CompileSpec, WhatAnEpochLacksIsStoodInFor) {
  auto specs = make_specs(request_of(128, 64, 64));
  EXPECT_EQ(specs[0].shape.n, 8);
  EXPECT_EQ(specs[1].shape.n, 8) << "no partial batch";
  specs = make_specs(request_of(97, 13, 256));
  EXPECT_EQ(specs[0].shape.n, 12) << "no full batch";
  EXPECT_EQ(specs[1].shape.n, 12);
  EXPECT_EQ(specs[4].shape.n, 2);
}

TEST(CompileSpec, TrainingOrValidationAlone) {
  EXPECT_EQ(names(make_specs(request_of(100, 0, 8))),
            (std::vector<std::string>{"train_base", "train_last", "train_lowres", "train_lowres_last"}));
  EXPECT_EQ(names(make_specs(request_of(0, 100, 8))), (std::vector<std::string>{"val_base", "val_last"}));
}

TEST(CompileSpec, BadRequestsAreRefused) {
  EXPECT_THROW(make_specs(request_of(0, 0, 8)), DataError);
  EXPECT_THROW(make_specs(request_of(7, 100, 8)), UserError);
  EXPECT_THROW(make_specs(request_of(100, 10, 12)), UserError);
  EXPECT_THROW(make_specs(request_of(100, 10, 0)), UserError);
  EXPECT_THROW(make_specs(request_of(-1, 10, 8)), DataError);
  EXPECT_THROW(make_specs(request_of(100, 10, 8, {{0, 0}})), UserError);
  EXPECT_THROW(make_specs(request_of(100, 10, 8, {})), InternalError);
  SpecRequest request = request_of(100, 10, 8);
  request.channels = 0;
  EXPECT_THROW(make_specs(request), UserError);
  request.channels = 1;
  request.val_resolution = -3;
  EXPECT_THROW(make_specs(request), UserError);
}

TEST(CompileSpec, VerifierRefusesDamage) {
  const auto good = make_specs(request_of(100, 10, 8));
  const auto refused = [&](auto change) {
    auto specs = good;
    change(specs);
    EXPECT_THROW(verify(specs), InternalError);
  };
  EXPECT_NO_THROW(verify(good));
  refused([](auto& specs) { specs.clear(); });
  refused([](auto& specs) { specs[1].name = specs[0].name; });
  refused([](auto& specs) { specs[1].name.clear(); });
  refused([](auto& specs) { specs[2].shape.h = 0; });
  refused([](auto& specs) { specs[2].shape.c = 3; });
}

TEST(CompileSpec, Prints) {
  EXPECT_EQ(kShapeInvariant.str(), "invariant");
  EXPECT_EQ((ShapeId{8, 28, 24, 3}).str(), "8x28x24x3");
  EXPECT_LT((ShapeId{1, 9, 9, 9}), (ShapeId{2, 0, 0, 0}));
  const std::string text = print(make_specs(request_of(60000, 10000, 128)));
  EXPECT_NE(text.find("1 train_last training 12x28x28x1 last\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace renai
