// Shape rules of every operator as a table; expected values by hand.

#include <gtest/gtest.h>

#include "renai/base/error.hpp"
#include "renai/graph/shape_inference.hpp"

namespace renai {
namespace {

ComputeNode node(OpKind op, OpParams params = NoParams{}, Pass pass = Pass::forward) {
  return {"conv3." + std::string(pass_name(pass)), op, pass, std::move(params), {}, {}, 0};
}

WindowParams window(std::int64_t kernel, std::int64_t stride, std::int64_t pad, std::int64_t dilation = 1) {
  return {kernel, kernel, stride, stride, pad, pad, dilation, dilation};
}

ComputeNode conv(std::int64_t out, WindowParams w, std::int64_t groups = 1, bool bias = false) {
  return node(OpKind::conv2d, Conv2dParams{out, w, groups, bias});
}

ComputeNode max_pool(WindowParams w, bool ceil_mode = false) {
  return node(OpKind::max_pool, PoolParams{w, ceil_mode, true});
}

ComputeNode avg_pool(WindowParams w, bool ceil_mode = false, bool count_pad = true) {
  return node(OpKind::avg_pool, PoolParams{w, ceil_mode, count_pad});
}

struct ShapeCase {
  const char* what;
  ComputeNode op;
  std::vector<Shape> inputs;
  std::vector<Shape> outputs;
};

const std::vector<ShapeCase>& shape_cases() {
  const WindowParams wide{1, 7, 1, 2, 0, 3, 1, 1};
  static const std::vector<ShapeCase> cases{
      {"same conv", conv(16, window(3, 1, 1)), {{2, 28, 28, 1}}, {{2, 28, 28, 16}}},
      {"conv, odd size, stride 2", conv(4, window(3, 2, 1)), {{1, 7, 9, 3}}, {{1, 4, 5, 4}}},
      {"conv, even size, stride 2: last column unread", conv(4, window(3, 2, 1)), {{1, 8, 8, 3}}, {{1, 4, 4, 4}}},
      {"conv 1x1", conv(5, window(1, 1, 0)), {{3, 5, 1, 2}}, {{3, 5, 1, 5}}},
      {"conv, stride over kernel", conv(2, window(1, 3, 0)), {{1, 7, 8, 2}}, {{1, 3, 3, 2}}},
      {"conv, dilation 2", conv(2, window(3, 1, 0, 2)), {{1, 9, 5, 2}}, {{1, 5, 1, 2}}},
      {"conv, dilation and padding", conv(2, window(3, 2, 2, 2)), {{1, 9, 10, 2}}, {{1, 5, 5, 2}}},
      {"conv, groups", conv(8, window(3, 1, 1), 4), {{1, 4, 4, 12}}, {{1, 4, 4, 8}}},
      {"conv, depthwise", conv(6, window(3, 1, 1), 6), {{1, 4, 4, 6}}, {{1, 4, 4, 6}}},
      {"conv, unequal axes", conv(2, wide), {{1, 5, 10, 3}}, {{1, 5, 5, 2}}},
      {"conv, kernel as large as its padded input", conv(2, window(6, 1, 1)), {{1, 4, 4, 3}}, {{1, 1, 1, 2}}},
      {"linear on rows", node(OpKind::linear, LinearParams{10, true}), {{8, 84}}, {{8, 10}}},
      {"linear on a map", node(OpKind::linear, LinearParams{10, true}), {{8, 3, 5, 7}}, {{8, 10}}},
      {"batch norm", node(OpKind::batch_norm, BatchNormParams{}), {{1, 1, 2, 3}}, {{1, 1, 2, 3}, {3}, {3}, {3}}},
      {"batch norm on rows", node(OpKind::batch_norm, BatchNormParams{}), {{2, 5}}, {{2, 5}, {5}, {5}, {5}}},
      {"batch norm, inference of one value",
       node(OpKind::batch_norm, BatchNormParams{}, Pass::inference),
       {{1, 1, 1, 3}},
       {{1, 1, 1, 3}}},
      {"activation", node(OpKind::activation, ActivationParams{}), {{2, 3, 4, 5}}, {{2, 3, 4, 5}}},
      {"max pool", max_pool(window(2, 2, 0)), {{1, 28, 28, 4}}, {{1, 14, 14, 4}}},
      {"max pool, odd, floor", max_pool(window(2, 2, 0)), {{1, 7, 7, 4}}, {{1, 3, 3, 4}}},
      {"max pool, odd, ceil", max_pool(window(2, 2, 0), true), {{1, 7, 7, 4}}, {{1, 4, 4, 4}}},
      {"max pool 3/2 p1", max_pool(window(3, 2, 1)), {{1, 112, 112, 1}}, {{1, 56, 56, 1}}},
      {"max pool 3/2 p1, ceil: a window in right padding only is dropped",
       max_pool(window(2, 2, 1), true),
       {{1, 4, 5, 1}},
       {{1, 3, 3, 1}}},
      {"max pool, ceil, stride over kernel", max_pool(window(2, 3, 0), true), {{1, 6, 7, 1}}, {{1, 2, 3, 1}}},
      {"max pool, overlapping, odd, ceil", max_pool(window(3, 2, 0), true), {{1, 6, 9, 1}}, {{1, 3, 4, 1}}},
      {"max pool, dilation", max_pool(window(3, 1, 1, 2)), {{1, 7, 7, 2}}, {{1, 5, 5, 2}}},
      {"avg pool", avg_pool(window(3, 3, 1)), {{1, 10, 11, 2}}, {{1, 4, 4, 2}}},
      {"avg pool, whole map", avg_pool(window(4, 4, 0)), {{2, 4, 4, 2}}, {{2, 1, 1, 2}}},
      {"adaptive average", node(OpKind::adaptive_avg_pool, AdaptivePoolParams{7, 6}), {{2, 3, 5, 7}}, {{2, 7, 6, 7}}},
      {"global average", node(OpKind::global_avg_pool), {{2, 3, 5, 7}}, {{2, 1, 1, 7}}},
      {"add", node(OpKind::add), {{2, 3, 3, 4}, {2, 3, 3, 4}}, {{2, 3, 3, 4}}},
      {"concat", node(OpKind::concat), {{2, 3, 3, 4}, {2, 3, 3, 1}, {2, 3, 3, 2}}, {{2, 3, 3, 7}}},
      {"concat of rows", node(OpKind::concat), {{2, 4}, {2, 6}}, {{2, 10}}},
      {"flatten", node(OpKind::flatten), {{2, 3, 5, 7}}, {{2, 105}}},
      {"flatten of rows", node(OpKind::flatten), {{2, 9}}, {{2, 9}}},
      {"dropout", node(OpKind::dropout, DropoutParams{}), {{2, 9}}, {{2, 9}}},
      {"loss", node(OpKind::softmax_cross_entropy, LossParams{}), {{4, 10}, {4}, {4}, {4}, {4}}, {{16}}},
      {"unpack", node(OpKind::unpack_slot), {{4, 8, 8, 3}}, {{4}, {4}, {4}, {4}, {64}}},
      {"normalize", node(OpKind::normalize_input, InputParams{}), {{4, 8, 8, 3}}, {{4, 8, 8, 3}}},
  };
  return cases;
}

TEST(ShapeRules, Forward) {
  for (const ShapeCase& item : shape_cases()) {
    SCOPED_TRACE(item.what);
    EXPECT_EQ(infer_shapes(item.op, item.inputs), item.outputs);
  }
}

TEST(ShapeRules, Parameters) {
  EXPECT_EQ(infer_param_shapes(conv(8, window(3, 1, 1), 4, true), Shape{1, 4, 4, 12}),
            (std::vector<Shape>{{8, 3, 3, 3}, {8}}));
  EXPECT_EQ(infer_param_shapes(conv(8, window(1, 1, 0)), Shape{1, 4, 4, 12}), (std::vector<Shape>{{8, 1, 1, 12}}));
  EXPECT_EQ(infer_param_shapes(node(OpKind::linear, LinearParams{10, true}), Shape{2, 3, 5, 7}),
            (std::vector<Shape>{{10, 105}, {10}}));
  EXPECT_EQ(infer_param_shapes(node(OpKind::linear, LinearParams{10, false}), Shape{2, 6}),
            (std::vector<Shape>{{10, 6}}));
  EXPECT_EQ(infer_param_shapes(node(OpKind::batch_norm, BatchNormParams{}), Shape{2, 3, 5, 7}),
            (std::vector<Shape>{{7}, {7}}));
  EXPECT_TRUE(infer_param_shapes(node(OpKind::add), Shape{2, 3}).empty());
}

TEST(ShapeRules, Backward) {
  const std::vector<Shape> x{{2, 7, 9, 4}};
  ComputeNode convolution = conv(8, window(3, 2, 1), 2, true);
  convolution.pass = Pass::backward_data;
  EXPECT_EQ(infer_backward_shapes(convolution, x), x);
  convolution.pass = Pass::backward_weights;
  EXPECT_EQ(infer_backward_shapes(convolution, x), (std::vector<Shape>{{8, 3, 3, 2}, {8}}));
  EXPECT_EQ(infer_backward_shapes(node(OpKind::batch_norm, BatchNormParams{}, Pass::backward), x),
            (std::vector<Shape>{x[0], {4}, {4}}));
  const std::vector<Shape> parts{{2, 3, 3, 4}, {2, 3, 3, 1}};
  EXPECT_EQ(infer_backward_shapes(node(OpKind::concat, NoParams{}, Pass::backward), parts), parts);
  EXPECT_EQ(infer_backward_shapes(node(OpKind::flatten, NoParams{}, Pass::backward), x), x);
  EXPECT_THROW(infer_backward_shapes(node(OpKind::flatten), x), InternalError);
  EXPECT_THROW(infer_shapes(node(OpKind::flatten, NoParams{}, Pass::backward), x), InternalError);
}

struct RefusalCase {
  const char* what;
  ComputeNode op;
  std::vector<Shape> inputs;
  const char* message;  ///< Stands in the error's text.
};

const std::vector<RefusalCase>& refusal_cases() {
  static const std::vector<RefusalCase> cases{
      {"kernel",
       conv(2, window(5, 1, 0)),
       {{8, 4, 4, 16}},
       "layer 'conv3': kernel 5x5 is larger than its padded input 4x4; its input is 8x4x4x16"},
      {"padded kernel", conv(2, window(7, 1, 1)), {{8, 4, 9, 16}}, "kernel 7x7 is larger than its padded input 6x11"},
      {"dilated kernel", conv(2, window(3, 1, 0, 2)), {{1, 4, 4, 1}}, "kernel 3x3 (5x5 with its dilation)"},
      {"input groups", conv(4, window(1, 1, 0), 2), {{1, 4, 4, 3}}, "3 input channels are not divisible by 2 groups"},
      {"output groups", conv(3, window(1, 1, 0), 2), {{1, 4, 4, 4}}, "3 output channels are not divisible by 2 groups"},
      {"conv on rows", conv(4, window(1, 1, 0)), {{8, 10}}, "conv2d needs a feature map"},
      {"pool on rows", max_pool(window(2, 2, 0)), {{8, 10}}, "max_pool needs a feature map"},
      {"global average on rows", node(OpKind::global_avg_pool), {{8, 10}}, "global_avg_pool needs a feature map"},
      {"pool kernel", max_pool(window(3, 1, 0)), {{1, 2, 9, 1}}, "kernel 3x3 is larger than its padded input 2x9"},
      {"pool padding",
       max_pool(window(2, 1, 2)),
       {{1, 4, 4, 1}},
       "padding 2x2 leaves windows of kernel 2x2 without any input"},
      {"dilated pool over a tiny input", max_pool(window(2, 1, 2, 3)), {{1, 1, 1, 1}}, "without any input"},
      {"dilated average", avg_pool(window(2, 1, 0, 2)), {{1, 8, 8, 1}}, "avg_pool takes no dilation"},
      {"one value per channel",
       node(OpKind::batch_norm, BatchNormParams{}),
       {{1, 1, 1, 8}},
       "training batch norm has one value per channel"},
      {"one row",
       node(OpKind::batch_norm, BatchNormParams{}),
       {{1, 8}},
       "training batch norm has one value per channel"},
      {"add of channels", node(OpKind::add), {{1, 4, 4, 2}, {1, 4, 4, 3}}, "its inputs are 1x4x4x2 and 1x4x4x3"},
      {"add does not broadcast", node(OpKind::add), {{1, 4, 4, 2}, {1, 1, 1, 2}}, "add needs equal shapes"},
      {"concat of sizes",
       node(OpKind::concat),
       {{1, 4, 4, 2}, {1, 4, 4, 2}, {1, 2, 2, 2}},
       "input 0 is 1x4x4x2, input 2 is 1x2x2x2"},
      {"concat of ranks",
       node(OpKind::concat),
       {{1, 4, 4, 2}, {1, 2}},
       "concat needs inputs that differ in channels only"},
      {"loss on a map", node(OpKind::softmax_cross_entropy, LossParams{}), {{2, 2, 2, 10}}, "the loss needs logits"},
      {"wrong weights",
       conv(2, window(3, 1, 1)),
       {{1, 4, 4, 3}, {2, 3, 3, 4}},
       "parameter 0 has shape 2x3x3x4 instead of 2x3x3x3"},
      {"stride 0", conv(2, window(3, 0, 1)), {{1, 4, 4, 3}}, "stride 0x0 is below 1"},
      {"kernel 0", conv(2, window(0, 1, 0)), {{1, 4, 4, 3}}, "kernel 0x0 is below 1"},
      {"negative padding", max_pool(window(2, 1, -1)), {{1, 4, 4, 3}}, "padding -1x-1 is below 0"},
      {"dilation 0", conv(2, window(3, 1, 1, 0)), {{1, 4, 4, 3}}, "dilation 0x0 is below 1"},
      {"no outputs", node(OpKind::linear, LinearParams{0, true}), {{1, 4}}, "out 0 is below 1"},
  };
  return cases;
}

TEST(ShapeRules, Refusals) {
  for (const RefusalCase& item : refusal_cases()) {
    SCOPED_TRACE(item.what);
    try {
      infer_shapes(item.op, item.inputs);
      ADD_FAILURE() << "accepted";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(item.message), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("layer 'conv3'"), std::string::npos) << error.what();
      EXPECT_NE(error.remedy(), "") << error.what();
    }
  }
}

TEST(ShapeRules, OneRowOfEachOfSeveralShardsHasAVariance) {
  BatchNormParams params;
  params.sync_shards = 2;
  EXPECT_EQ(infer_shapes(node(OpKind::batch_norm, params), std::vector{Shape{1, 8}}).at(0), (Shape{1, 8}));
}

/// The pool formula against counting windows one by one: a window counts when it starts inside the left-padded input
/// and, without ceil mode, also ends inside the padded one.
TEST(ShapeRules, PoolExtentsAgreeWithCountingWindows) {
  for (std::int64_t extent = 1; extent <= 9; ++extent) {
    for (std::int64_t kernel = 1; kernel <= 4; ++kernel) {
      for (std::int64_t stride = 1; stride <= 4; ++stride) {
        for (std::int64_t pad = 0; pad <= kernel / 2; ++pad) {
          if (kernel > extent + 2 * pad) continue;
          for (const bool ceil_mode : {false, true}) {
            std::int64_t count = 0;
            for (std::int64_t start = -pad;; start += stride) {
              const bool fits = start + kernel <= extent + pad;
              // In ceil mode one more window than fit may start, when it still covers a part of the input's range.
              const bool first_beyond = !fits && start - stride + kernel < extent + pad;
              if (!fits && !(ceil_mode && first_beyond && start < extent)) break;
              ++count;
            }
            const Shape x{1, extent, extent, 1};
            const Shape wanted{1, count, count, 1};
            EXPECT_EQ(infer_shapes(max_pool(window(kernel, stride, pad), ceil_mode), std::vector{x})[0], wanted)
                << extent << " k" << kernel << " s" << stride << " p" << pad << " ceil " << ceil_mode;
          }
        }
      }
    }
  }
}

TEST(ShapeRules, Dtypes) {
  EXPECT_EQ(tensor_dtype(TensorRole::labels), DType::i32);
  EXPECT_EQ(tensor_dtype(TensorRole::mix_labels), DType::i32);
  EXPECT_EQ(tensor_dtype(TensorRole::slot), DType::u8);
  EXPECT_EQ(tensor_dtype(TensorRole::control), DType::u8);
  EXPECT_EQ(tensor_dtype(TensorRole::mix_lambda), DType::f32);
  EXPECT_EQ(tensor_dtype(TensorRole::activation), DType::f32);
}

}  // namespace
}  // namespace renai
