// Structure of forward, backward and inference graphs of small models.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_text.hpp"
#include "model_builder.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/shape_inference.hpp"

namespace renai {
namespace {

using testing::backward_texts;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ModelBuilder;
using testing::node_texts;

const std::string kLossArguments = "labels, mix_labels, mix_lambda, sample_weights";
const std::string kUnpack = ") -> labels, mix_labels, mix_lambda, sample_weights, control";

ComputationGraph build(const ModelBuilder& model, const GraphOptions& options = {}) {
  return build_computation_graph(model.spec(), options);
}

TEST(Autodiff, ChainOfLayers) {
  ModelBuilder model;
  model.conv("conv1", "input", 4, 3, true).layer(LayerKind::relu, "relu1", {"conv1"});
  model.pool(LayerKind::max_pool, "pool1", "relu1").layer(LayerKind::silu, "silu1", {"pool1"}).linear("fc", "silu1");
  const ComputationGraph graph = build(model);
  EXPECT_THAT(node_texts(graph, GraphId::FIRST_LAYER_FWD_B),
              ElementsAre("input.unpack(slot_b" + kUnpack, "input.normalize(slot_b) -> input",
                          "conv1.forward(input, conv1.weight, conv1.bias) -> conv1"));
  EXPECT_THAT(node_texts(graph, GraphId::DEEP_FWD_BWD),
              ElementsAre("relu1.forward(conv1) -> relu1", "pool1.forward(relu1) -> pool1",
                          "silu1.forward(pool1) -> silu1", "fc.forward(silu1, fc.weight, fc.bias) -> fc",
                          "output.loss.forward(fc, " + kLossArguments + ") -> metrics",
                          "output.loss.backward(fc, " + kLossArguments + ") -> fc.grad",
                          "fc.backward_weights(silu1, fc.grad) -> fc.weight.grad, fc.bias.grad",
                          "fc.backward_data(fc.grad, fc.weight) -> silu1.grad",
                          "silu1.backward(pool1, silu1.grad) -> pool1.grad",  // SiLU's gradient reads its input,
                          "pool1.backward(relu1, pool1.grad) -> relu1.grad",
                          "relu1.backward(relu1, relu1.grad) -> conv1.grad"));  // ReLU's its output.
  EXPECT_THAT(node_texts(graph, GraphId::FIRST_LAYER_BWD_A),
              ElementsAre("input.normalize(slot_a) -> input.again",
                          "conv1.backward_weights(input.again, conv1.grad) -> conv1.weight.grad, conv1.bias.grad"));
}

TEST(Autodiff, ResidualSumsLastReaderFirstAndAddHasNoNode) {
  ModelBuilder model;
  model.conv("conv1", "input", 4).conv("conv2", "conv1", 4).layer(LayerKind::add, "sum", {"conv1", "conv2"});
  model.linear("fc", "sum");
  const ComputationGraph graph = build(model);
  EXPECT_THAT(backward_texts(graph), ElementsAre("output.loss.backward(fc, " + kLossArguments + ") -> fc.grad",
                                                 "fc.backward_weights(sum, fc.grad) -> fc.weight.grad, fc.bias.grad",
                                                 "fc.backward_data(fc.grad, fc.weight) -> sum.grad",
                                                 "conv2.backward_weights(conv1, sum.grad) -> conv2.weight.grad",
                                                 "conv2.backward_data(sum.grad, conv2.weight) -> conv1.grad",
                                                 "conv1.grad.sum1.forward(sum.grad, conv1.grad) -> conv1.grad.sum1"));
  EXPECT_THAT(node_texts(graph, GraphId::FIRST_LAYER_BWD_A),
              ElementsAre("input.normalize(slot_a) -> input.again",
                          "conv1.backward_weights(input.again, conv1.grad.sum1) -> conv1.weight.grad"));
}

TEST(Autodiff, ManyReadersGiveNestedSumsInOneOrder) {
  ModelBuilder model;
  model.conv("stem", "input", 4).conv("a", "stem", 4).conv("b", "stem", 4).conv("c", "stem", 4);
  model.layer(LayerKind::concat, "cat", {"a", "b", "c", "stem"}).linear("fc", "cat");
  const ComputationGraph graph = build(model);
  std::vector<std::string> texts = backward_texts(graph);
  texts.erase(texts.begin(), texts.begin() + 3);
  EXPECT_THAT(texts, ElementsAre("cat.backward(cat.grad) -> a.grad, b.grad, c.grad, stem.grad",
                                 "c.backward_weights(stem, c.grad) -> c.weight.grad",
                                 "c.backward_data(c.grad, c.weight) -> stem.grad.1",
                                 "stem.grad.sum1.forward(stem.grad, stem.grad.1) -> stem.grad.sum1",
                                 "b.backward_weights(stem, b.grad) -> b.weight.grad",
                                 "b.backward_data(b.grad, b.weight) -> stem.grad.2",
                                 "stem.grad.sum2.forward(stem.grad.sum1, stem.grad.2) -> stem.grad.sum2",
                                 "a.backward_weights(stem, a.grad) -> a.weight.grad",
                                 "a.backward_data(a.grad, a.weight) -> stem.grad.3",
                                 "stem.grad.sum3.forward(stem.grad.sum2, stem.grad.3) -> stem.grad.sum3"));
}

TEST(Autodiff, ConcatTakesAnyNumberOfInputs) {
  ModelBuilder model;
  std::vector<std::string> parts;
  for (int i = 0; i < 200; ++i) {
    parts.push_back("conv" + std::to_string(i));
    model.conv(parts.back(), "input", 1);
  }
  model.layer(LayerKind::concat, "cat", parts).linear("fc", "cat");
  const ComputationGraph graph = build(model);
  EXPECT_NO_THROW(verify(graph));
  EXPECT_EQ(graph.params().size(), 202u);  // With the bias of fc.
}

TEST(Autodiff, AddOfATensorWithItselfDoublesTheGradient) {
  ModelBuilder model;
  model.conv("conv1", "input", 4).layer(LayerKind::add, "twice", {"conv1", "conv1"}).linear("fc", "twice");
  EXPECT_EQ(backward_texts(build(model)).back(), "conv1.grad.sum1.forward(twice.grad, twice.grad) -> conv1.grad.sum1");
}

TEST(Autodiff, BatchNormReadsSavedStatistics) {
  ModelBuilder model;
  model.conv("conv1", "input", 4).layer(LayerKind::batch_norm, "bn1", {"conv1"}).linear("fc", "bn1");
  const ComputationGraph graph = build(model);
  EXPECT_EQ(node_texts(graph, GraphId::DEEP_FWD_BWD)[0],
            "bn1.forward(conv1, bn1.weight, bn1.bias) -> bn1, bn1.batch_mean, bn1.batch_var, bn1.biased_var");
  EXPECT_EQ(backward_texts(graph).back(),
            "bn1.backward(conv1, bn1.grad, bn1.weight, bn1.batch_mean, bn1.biased_var) -> conv1.grad, bn1.weight.grad, "
            "bn1.bias.grad");
}

TEST(Autodiff, NothingBeforeTheFirstParameterHasAGradient) {
  ModelBuilder model;
  model.pool(LayerKind::avg_pool, "pool1", "input")
      .layer(LayerKind::relu, "relu1", {"pool1"})
      .conv("conv1", "relu1", 4);
  model.linear("fc", "conv1");
  const ComputationGraph graph = build(model);
  EXPECT_THAT(node_texts(graph, GraphId::FIRST_LAYER_BWD_A), IsEmpty());
  EXPECT_EQ(backward_texts(graph).back(), "conv1.backward_weights(relu1, conv1.grad) -> conv1.weight.grad");
  for (const TensorInfo& tensor : graph.tensors()) EXPECT_NE(tensor.name, "relu1.grad");
  for (const ParamInfo& param : graph.params()) EXPECT_FALSE(param.first_layer) << param.name;
}

TEST(Autodiff, FlattenedInputIsMadeAgainThroughItsView) {
  ModelBuilder model;
  model.layer(LayerKind::flatten, "flat", {"input"}).linear("fc1", "flat", 8).layer(LayerKind::relu, "relu1", {"fc1"});
  model.linear("fc2", "relu1");
  const ComputationGraph graph = build(model);
  EXPECT_THAT(node_texts(graph, GraphId::FIRST_LAYER_BWD_B),
              ElementsAre("input.normalize(slot_b) -> input.again", "flat.forward(input.again) -> flat.again",
                          "fc1.backward_weights(flat.again, fc1.grad) -> fc1.weight.grad, fc1.bias.grad"));
  EXPECT_TRUE(graph.params()[0].first_layer);
  EXPECT_FALSE(graph.params()[2].first_layer);
}

TEST(Autodiff, FirstLayerReachesToTheLastReaderOfTheInput) {
  ModelBuilder model;
  model.conv("conv1", "input", 4).layer(LayerKind::relu, "relu1", {"conv1"});
  model.layer(LayerKind::concat, "cat", {"relu1", "input"}).conv("conv2", "cat", 4).linear("fc", "conv2");
  const ComputationGraph graph = build(model);
  EXPECT_EQ(graph.nodes(GraphId::FIRST_LAYER_FWD_A).size(), 5u);
  EXPECT_EQ(testing::find_node(graph, GraphId::DEEP_FWD_BWD, "conv2.forward"), 0);
  EXPECT_THAT(node_texts(graph, GraphId::FIRST_LAYER_BWD_A),
              ElementsAre("input.normalize(slot_a) -> input.again", "cat.backward(cat.grad) -> relu1.grad, input.grad",
                          "relu1.backward(relu1, relu1.grad) -> conv1.grad",
                          "conv1.backward_weights(input.again, conv1.grad) -> conv1.weight.grad"));
}

TEST(Autodiff, BatchNormOfTheInputTrainsItsParameters) {
  ModelBuilder model;
  model.layer(LayerKind::batch_norm, "bn0", {"input"}).conv("conv1", "bn0", 4).linear("fc", "conv1");
  const ComputationGraph graph = build(model);
  EXPECT_THAT(
      node_texts(graph, GraphId::FIRST_LAYER_BWD_A),
      ElementsAre("input.normalize(slot_a) -> input.again",
                  "bn0.backward(input.again, bn0.grad, bn0.weight, bn0.batch_mean, bn0.biased_var) -> input.grad, "
                  "bn0.weight.grad, bn0.bias.grad"));
}

TEST(Autodiff, OneLinearLayerHasNoDeepBucket) {
  ModelBuilder model;
  model.linear("fc", "input");
  GraphOptions options;
  options.world_size = 2;
  const ComputationGraph graph = build(model, options);
  EXPECT_EQ(graph.deep_buckets(), 0);
  EXPECT_TRUE(graph.empty(GraphId::DEEP_COMM));
  EXPECT_TRUE(graph.empty(GraphId::CAST_DEEP_GRAD));
  EXPECT_FALSE(graph.empty(GraphId::FIRST_COMM));
  EXPECT_THAT(backward_texts(graph), ElementsAre("output.loss.backward(fc, " + kLossArguments + ") -> fc.grad"));
  EXPECT_THAT(node_texts(graph, GraphId::FIRST_LAYER_BWD_A),
              ElementsAre("input.normalize(slot_a) -> input.again",
                          "fc.backward_weights(input.again, fc.grad) -> fc.weight.grad, fc.bias.grad"));
}

TEST(Inference, FoldsBatchNormAndLeavesDropoutOut) {
  ModelBuilder model;
  model.conv("conv1", "input", 4)
      .layer(LayerKind::batch_norm, "bn1", {"conv1"})
      .layer(LayerKind::dropout, "drop", {"bn1"});
  model.linear("fc", "drop");
  const ComputationGraph graph = build(model);
  EXPECT_THAT(node_texts(graph, GraphId::INF_MAIN_B),
              ElementsAre("input.unpack(slot_b" + kUnpack, "input.normalize(slot_b) -> inference.input",
                          "conv1.forward(inference.input, conv1.weight) -> inference.conv1",
                          "bn1.inference(inference.conv1, bn1.folded_scale, bn1.folded_bias) -> inference.bn1",
                          "fc.forward(inference.bn1, fc.weight, fc.bias) -> inference.fc",
                          "output.loss.forward(inference.fc, " + kLossArguments + ") -> metrics"));
  EXPECT_EQ(graph.tensor(graph.parts().inference_logits).name, "inference.fc");
  const std::vector<std::string> texts = node_texts(graph, GraphId::DEEP_FWD_BWD);
  EXPECT_THAT(texts, ::testing::Contains("drop.forward(bn1, control) -> drop"));
  EXPECT_THAT(texts, ::testing::Contains("drop.backward(drop.grad, control) -> bn1.grad"));
}

TEST(Logits, AFeatureMapOfOnePixelIsFlattened) {
  ModelBuilder model;
  model.conv("conv1", "input", 10).layer(LayerKind::global_avg_pool, "gap", {"conv1"});
  const ComputationGraph graph = build(model);
  EXPECT_EQ(graph.tensor(graph.parts().logits).name, "output.flatten");
  const std::vector<Shape> shapes = infer_shapes(graph, Shape{2, 8, 8, 3}, true);
  EXPECT_EQ(shapes[static_cast<std::size_t>(graph.parts().logits)], (Shape{2, 10}));
}

std::string shape_error(const ModelBuilder& model, const Shape& input, bool training = true) {
  try {
    infer_shapes(build(model), input, training);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Logits, OthersAreRefused) {
  ModelBuilder map;
  map.conv("conv1", "input", 10);
  EXPECT_THAT(shape_error(map, Shape{2, 8, 8, 3}),
              HasSubstr("its output is a feature map, not logits; the output is 2x8x8x10"));
  ModelBuilder wide;
  wide.linear("fc", "input", 12).layer(LayerKind::relu, "relu1", {"fc"});
  EXPECT_THAT(shape_error(wide, Shape{2, 8, 8, 3}),
              HasSubstr("not one logit for each of 10 classes; the output is 2x12"));
}

TEST(BuildRefuses, ModelsThatCannotBeTrained) {
  ModelBuilder none;
  none.layer(LayerKind::global_avg_pool, "gap", {"input"});
  EXPECT_THROW(build(none), UserError);
  EXPECT_THROW(build(ModelBuilder()), UserError);
  ModelBuilder wrong;
  wrong.linear("fc", "input", 12);
  EXPECT_THROW(build(wrong), UserError);
  ModelSpec fixed = ModelBuilder().linear("fc", "input").spec();
  fixed.classes = 100;
  EXPECT_THROW(build_computation_graph(fixed, {}), UserError);
  fixed.classes = 10;
  fixed.input_channels = 3;
  EXPECT_THROW(infer_shapes(build_computation_graph(fixed, {}), Shape{2, 8, 8, 1}, true), UserError);
}

TEST(GraphShapes, FamiliesKeepOutOfEachOther) {
  ModelBuilder model;
  model.conv("conv1", "input", 4).layer(LayerKind::batch_norm, "bn1", {"conv1"}).linear("fc", "bn1");
  const ComputationGraph graph = build(model);
  for (const bool training : {true, false}) {
    const std::vector<Shape> shapes = infer_shapes(graph, Shape{2, 5, 7, 3}, training);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const TensorInfo& info = graph.tensors()[i];
      SCOPED_TRACE(info.name);
      if (info.role == TensorRole::slot) {
        EXPECT_EQ(shapes[i].rank(), 0);
      } else if (is_transient(info.role)) {
        EXPECT_EQ(shapes[i].rank() > 0, info.name.starts_with("inference.") != training);
      } else {
        EXPECT_GT(shapes[i].rank(), 0);
      }
    }
    const auto shape = [&](const char* name) {
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        if (graph.tensors()[i].name == name) return shapes[i];
      }
      return Shape{};
    };
    EXPECT_EQ(shape("conv1.weight.momentum"), (Shape{4, 3, 3, 3}));
    EXPECT_EQ(shape("fc.weight.grad"), (Shape{10, 140}));
    EXPECT_EQ(shape("bn1.running_var"), (Shape{4}));
    EXPECT_EQ(shape("bn1.folded_bias"), (Shape{4}));
    EXPECT_EQ(shape("metrics"), (Shape{16}));
    EXPECT_EQ(shape("control"), (Shape{64}));
    EXPECT_EQ(shape("labels"), (Shape{2}));
  }
}

TEST(GraphShapes, BatchNormOfOneValueIsRefusedInTrainingOnly) {
  ModelBuilder model;
  model.conv("conv1", "input", 4, 1).layer(LayerKind::batch_norm, "bn1", {"conv1"}).linear("fc", "bn1");
  EXPECT_THAT(shape_error(model, Shape{1, 1, 1, 3}),
              HasSubstr("layer 'bn1': training batch norm has one value per channel"));
  EXPECT_EQ(shape_error(model, Shape{1, 1, 1, 3}, false), "accepted");
  EXPECT_THAT(shape_error(model, Shape{0, 1, 1, 3}), HasSubstr("no empty extent"));
}

TEST(GraphShapes, ParametersThatDependOnTheResolutionAreRefused) {
  ModelBuilder whole_map;
  whole_map.conv("conv1", "input", 4).linear("fc", "conv1");
  const ComputationGraph graph = build(whole_map);
  const std::vector<Shape> small = infer_shapes(graph, Shape{2, 8, 8, 3}, true);
  EXPECT_NO_THROW(check_equal_params(graph, small, infer_shapes(graph, Shape{4, 8, 8, 3}, false)));
  try {
    check_equal_params(graph, small, infer_shapes(graph, Shape{2, 9, 9, 3}, false));
    ADD_FAILURE() << "accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("parameter 'fc.weight' depends on the resolution; it is 10x256 for one input and "
                          "10x324 for another"));
  }
}

}  // namespace
}  // namespace renai
