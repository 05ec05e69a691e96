#include "op_instance.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "renai/base/error.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/graph/shape_inference.hpp"

namespace renai::test {
namespace {

class Maker {
 public:
  Maker(const OpCase& op_case, std::uint64_t seed) : case_(op_case), random_(seed) {}

  OpInstance make() {
    static const std::map<std::string, void (Maker::*)()> kMakers{
        {"unpack_slot", &Maker::unpack_slot},
        {"normalize_input", &Maker::normalize_input},
        {"conv2d", &Maker::conv2d},
        {"linear", &Maker::linear},
        {"batch_norm", &Maker::batch_norm},
        {"activation", &Maker::activation},
        {"max_pool", &Maker::max_pool},
        {"avg_pool", &Maker::avg_pool},
        {"global_avg_pool", &Maker::global_avg_pool},
        {"adaptive_avg_pool", &Maker::adaptive_avg_pool},
        {"add", &Maker::add},
        {"concat", &Maker::concat},
        {"flatten", &Maker::flatten},
        {"dropout", &Maker::dropout},
        {"softmax_cross_entropy", &Maker::softmax_cross_entropy},
    };
    const auto maker = kMakers.find(case_.op);
    if (maker == kMakers.end()) throw UserError("making a case", "there is no operator '" + case_.op + "'");
    (this->*maker->second)();
    return std::move(instance_);
  }

 private:
  OpGraph& graph() { return instance_.graph; }

  float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(random_); }
  std::int64_t below(std::int64_t limit) { return static_cast<std::int64_t>(random_() % static_cast<unsigned>(limit)); }

  std::vector<float> uniform_values(std::int64_t count, float low = -1.0f, float high = 1.0f) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = uniform(low, high);
    return values;
  }

  TensorId input(const std::string& name, const Shape& shape, TensorRole role = TensorRole::activation) {
    const TensorId id = graph().add_tensor(name, role, shape);
    instance_.floats.push_back({id, uniform_values(shape.elems())});
    return id;
  }
  TensorId gradient_input(const std::string& name, const Shape& shape) {
    return input(name, shape, TensorRole::activation_grad);
  }
  void set_values(TensorId id, std::vector<float> values) { instance_.floats.push_back({id, std::move(values)}); }

  TensorId output(const std::string& name, const Shape& shape, std::int64_t depth, bool exact = false,
                  TensorRole role = TensorRole::activation) {
    const TensorId id = graph().add_tensor(name, role, shape);
    instance_.outputs.push_back({id, depth, exact});
    return id;
  }
  TensorId gradient_output(const std::string& name, const Shape& shape, std::int64_t depth, bool exact = false) {
    return output(name, shape, depth, exact, TensorRole::activation_grad);
  }

  ParamInfo random_param(const std::string& name, ParamKind kind, const Shape& shape, float low = -1, float high = 1) {
    const ParamInfo info = graph().param(graph().add_param(name, kind, shape));
    set_values(info.weight, uniform_values(shape.elems(), low, high));
    return info;
  }

  Shape forward_shape(OpKind op, const OpParams& params, std::vector<Shape> inputs) const {
    ComputeNode node;
    node.name = case_.name;
    node.op = op;
    node.params = params;
    return infer_shapes(node, inputs).at(0);
  }

  void use_shape(const Shape& x) {
    instance_.variant = {x.n(), x.h(), x.w(), x.c()};
    instance_.slot = SlotLayout::make(x.n(), 1, 1, 1);
  }

  // One activation in, one out, and the gradient of x from `read` (x, y or nothing) and dy.
  enum class Reads { nothing, x, y };
  void unary(OpKind op, const OpParams& params, std::vector<float> x_values, std::int64_t depth, Reads reads,
             bool linear, bool check_gradient = true, bool exact = false) {
    const Shape x_shape = case_.input_shape();
    use_shape(x_shape);
    const TensorId x = graph().add_tensor("x", TensorRole::activation, x_shape);
    set_values(x, std::move(x_values));
    const Shape y_shape = forward_shape(op, params, {x_shape});
    const TensorId y = output("y", y_shape, depth, exact);
    const TensorId dy = gradient_input("dy", y_shape);
    const TensorId dx = gradient_output("dx", x_shape, depth, exact);
    graph().add_compute(op, Pass::forward, params, {x}, {y});
    std::vector<TensorId> inputs{dy};
    if (reads != Reads::nothing) inputs.insert(inputs.begin(), reads == Reads::x ? x : y);
    graph().add_compute(op, Pass::backward, params, std::move(inputs), {dx});
    if (check_gradient) instance_.gradients.push_back({x, dx, y, dy, linear});
  }

  void conv2d() {
    Conv2dParams params;
    params.out_channels = case_.integer("out");
    params.window = case_.window();
    params.groups = case_.integer("groups", 1);
    params.bias = case_.integer("bias", 0) != 0;
    const Shape x_shape = case_.input_shape(), y_shape = forward_shape(OpKind::conv2d, params, {x_shape});
    use_shape(x_shape);
    const std::int64_t taps = params.window.kernel_h * params.window.kernel_w, group_c = x_shape.c() / params.groups;
    const std::int64_t forward_depth = taps * group_c, data_depth = taps * params.out_channels / params.groups;
    const std::int64_t weight_depth = y_shape.n() * y_shape.h() * y_shape.w();
    instance_.flops = 2 * 3 * y_shape.elems() * forward_depth;
    const TensorId x = input("x", x_shape);
    const ParamInfo w = random_param("w", ParamKind::conv_weight,
                                     {params.out_channels, params.window.kernel_h, params.window.kernel_w, group_c});
    product(OpKind::conv2d, params, params.bias, x, x_shape, w, y_shape, forward_depth, data_depth, weight_depth);
  }

  void linear() {
    LinearParams params{case_.integer("out"), case_.integer("bias", 1) != 0};
    const Shape x_shape = case_.input_shape(), y_shape = forward_shape(OpKind::linear, params, {x_shape});
    use_shape(x_shape);
    const std::int64_t features = x_shape.elems() / x_shape.n();
    instance_.flops = 2 * 3 * y_shape.elems() * features;
    const TensorId x = input("x", x_shape);
    const ParamInfo w = random_param("w", ParamKind::linear_weight, {params.out_features, features});
    product(OpKind::linear, params, params.bias, x, x_shape, w, y_shape, features, params.out_features, x_shape.n());
  }

  /// What conv2d and linear have in common: three passes around one weight.
  void product(OpKind op, const OpParams& params, bool bias, TensorId x, const Shape& x_shape, const ParamInfo& w,
               const Shape& y_shape, std::int64_t forward_depth, std::int64_t data_depth, std::int64_t weight_depth) {
    std::vector<TensorId> inputs{x, w.weight}, gradients{w.grad};
    const TensorId y = output("y", y_shape, forward_depth);
    const TensorId dy = gradient_input("dy", y_shape);
    instance_.outputs.push_back({w.grad, weight_depth, false});
    instance_.gradients.push_back({w.weight, w.grad, y, dy, true});
    if (bias) {
      const ParamInfo b = random_param("b", ParamKind::bias, Shape{y_shape.c()});
      inputs.push_back(b.weight);
      gradients.push_back(b.grad);
      instance_.outputs.push_back({b.grad, weight_depth, false});
      instance_.gradients.push_back({b.weight, b.grad, y, dy, true});
    }
    const TensorId dx = gradient_output("dx", x_shape, data_depth);
    instance_.gradients.push_back({x, dx, y, dy, true});
    graph().add_compute(op, Pass::forward, params, std::move(inputs), {y});
    graph().add_compute(op, Pass::backward_weights, params, {x, dy}, std::move(gradients));
    graph().add_compute(op, Pass::backward_data, params, {dy, w.weight}, {dx});
  }

  void batch_norm() {
    const BatchNormParams params{case_.real("eps", 1e-5f), 0.1f};
    const Shape x_shape = case_.input_shape();
    use_shape(x_shape);
    const NormInfo norm = graph().norm(graph().add_norm("bn", x_shape.c(), params));
    const ParamInfo scale = graph().param(norm.scale_param), bias = graph().param(norm.bias_param);
    const TensorId x = graph().add_tensor("x", TensorRole::activation, x_shape);
    const float offset = case_.real("offset", 0.0f);
    set_values(x, uniform_values(x_shape.elems(), offset - 1.5f, offset + 1.5f));
    const std::int64_t depth = x_shape.elems() / x_shape.c();
    if (case_.text("pass", "training") == "inference") {
      set_values(norm.folded_scale, uniform_values(x_shape.c(), 0.5f, 1.5f));
      set_values(norm.folded_bias, uniform_values(x_shape.c()));
      const TensorId y = output("y", x_shape, 2);
      graph().add_compute(OpKind::batch_norm, Pass::inference, params, {x, norm.folded_scale, norm.folded_bias}, {y});
      return;
    }
    set_values(scale.weight, uniform_values(x_shape.c(), 0.5f, 1.5f));
    set_values(bias.weight, uniform_values(x_shape.c()));
    const TensorId y = output("y", x_shape, depth);
    const TensorId saved = graph().add_tensor("biased_var", TensorRole::saved, Shape{x_shape.c()});
    const TensorId dy = gradient_input("dy", x_shape);
    const TensorId dx = gradient_output("dx", x_shape, depth);
    for (const TensorId id : {norm.batch_mean, norm.batch_var, saved, scale.grad, bias.grad}) {
      instance_.outputs.push_back({id, depth, false});
    }
    graph().add_compute(OpKind::batch_norm, Pass::forward, params, {x, scale.weight, bias.weight},
                        {y, norm.batch_mean, norm.batch_var, saved});
    graph().add_compute(OpKind::batch_norm, Pass::backward, params, {x, dy, scale.weight, norm.batch_mean, saved},
                        {dx, scale.grad, bias.grad});
    instance_.gradients = {
        {x, dx, y, dy, false}, {scale.weight, scale.grad, y, dy, true}, {bias.weight, bias.grad, y, dy, true}};
  }

  Activation activation_kind() const {
    const std::string name = case_.text("kind", "relu");
    for (int i = 0; i <= static_cast<int>(Activation::tanh); ++i) {
      if (activation_name(static_cast<Activation>(i)) == name) return static_cast<Activation>(i);
    }
    throw UserError("case '" + case_.name + "'", "there is no activation '" + name + "'");
  }

  /// Away from the points without a derivative, so that differences do not step over them.
  void activation() {
    const ActivationParams params{activation_kind(), case_.real("slope", 0.01f)};
    std::vector<float> kinks;
    if (params.kind == Activation::relu || params.kind == Activation::leaky_relu) kinks = {0};
    if (params.kind == Activation::relu6) kinks = {0, 6};
    if (params.kind == Activation::hard_swish) kinks = {-3, 3};
    std::vector<float> values = uniform_values(case_.input_shape().elems(), -4.5f, 7.0f);
    for (float& value : values) {
      for (const float kink : kinks) {
        if (std::abs(value - kink) < 0.2f) value = value < kink ? kink - 0.2f : kink + 0.2f;
      }
    }
    unary(OpKind::activation, params, std::move(values), 1, backward_reads_output(params.kind) ? Reads::y : Reads::x,
          false);
  }

  /// Values of a shuffled ladder, so that differences never change which one is the greatest; or few values with ties.
  void max_pool() {
    const PoolParams params{case_.window(), case_.integer("ceil", 0) != 0, true};
    std::vector<float> values(static_cast<std::size_t>(case_.input_shape().elems()));
    const bool ties = case_.integer("ties", 0) != 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = ties ? static_cast<float>(below(3)) - 1.0f
                       : 0.3f * (static_cast<float>(i) - 0.5f * static_cast<float>(values.size()));
    }
    if (!ties) std::shuffle(values.begin(), values.end(), random_);
    const std::int64_t depth = params.window.kernel_h * params.window.kernel_w;
    unary(OpKind::max_pool, params, std::move(values), depth, Reads::x, true, !ties);
    instance_.outputs.front().exact = true;  // y is one of the inputs.
  }

  void avg_pool() {
    const PoolParams params{case_.window(), case_.integer("ceil", 0) != 0, case_.integer("count_pad", 1) != 0};
    const std::int64_t depth = params.window.kernel_h * params.window.kernel_w;
    unary(OpKind::avg_pool, params, uniform_values(case_.input_shape().elems()), depth, Reads::nothing, true);
  }

  void global_avg_pool() {
    const Shape x = case_.input_shape();
    unary(OpKind::global_avg_pool, NoParams{}, uniform_values(x.elems()), x.h() * x.w(), Reads::nothing, true);
  }

  void adaptive_avg_pool() {
    const Shape x = case_.input_shape();
    const AdaptivePoolParams params{case_.integer("out_h", 1), case_.integer("out_w", 1)};
    const std::int64_t depth = (x.h() / params.out_h + 2) * (x.w() / params.out_w + 2);
    unary(OpKind::adaptive_avg_pool, params, uniform_values(x.elems()), depth, Reads::nothing, true);
  }

  void flatten() {
    unary(OpKind::flatten, NoParams{}, uniform_values(case_.input_shape().elems()), 1, Reads::nothing, true, true,
          true);
  }

  void add() {
    const Shape shape = case_.input_shape();
    use_shape(shape);
    const TensorId a = input("a", shape), b = input("b", shape), y = output("y", shape, 1, true);
    graph().add_compute(OpKind::add, Pass::forward, NoParams{}, {a, b}, {y});
  }

  /// Inputs of c, c2 and, where given, c3 channels.
  void concat() {
    const Shape first = case_.input_shape();
    use_shape(first);
    std::vector<TensorId> parts, gradients;
    std::vector<Shape> shapes;
    for (const char* key : {"c", "c2", "c3"}) {
      if (!case_.has(key)) continue;
      const std::int64_t c = case_.integer(key);
      shapes.push_back(first.rank() == 2 ? Shape{first.n(), c} : Shape{first.n(), first.h(), first.w(), c});
      parts.push_back(input(std::string("x") + key, shapes.back()));
      gradients.push_back(gradient_output(std::string("dx") + key, shapes.back(), 1, true));
    }
    const Shape joined = forward_shape(OpKind::concat, NoParams{}, shapes);
    const TensorId y = output("y", joined, 1, true), dy = gradient_input("dy", joined);
    graph().add_compute(OpKind::concat, Pass::forward, NoParams{}, parts, {y});
    graph().add_compute(OpKind::concat, Pass::backward, NoParams{}, {dy}, gradients);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      instance_.gradients.push_back({parts[i], gradients[i], y, dy, true});
    }
  }

  void draw_control() {
    instance_.control.seed = random_();
    instance_.control.step = below(1 << 30);
    instance_.control.shard = static_cast<std::int32_t>(below(512));
    instance_.control.lr = uniform(0, 1);
  }

  void dropout() {
    const DropoutParams params{case_.real("p", 0.5f), static_cast<std::uint32_t>(case_.integer("layer", 3))};
    const Shape shape = case_.input_shape();
    use_shape(shape);
    graph().add_input_side(shape.n());
    draw_control();
    const TensorId control = graph().parts().control;
    const TensorId x = input("x", shape), y = output("y", shape, 1, true);
    const TensorId dy = gradient_input("dy", shape), dx = gradient_output("dx", shape, 1, true);
    graph().add_compute(OpKind::dropout, Pass::forward, params, {x, control}, {y});
    graph().add_compute(OpKind::dropout, Pass::backward, params, {dy, control}, {dx});
    instance_.gradients.push_back({x, dx, y, dy, true});
  }

  void softmax_cross_entropy() {
    const LossParams params{case_.real("smoothing", 0.0f)};
    const std::int64_t rows = case_.integer("n"), classes = case_.integer("classes");
    const Shape shape{rows, classes};
    use_shape(shape);
    graph().add_input_side(rows);
    const TensorId logits = graph().add_tensor("logits", TensorRole::activation, shape);
    const float range = case_.real("range", 3.0f);
    set_values(logits, uniform_values(shape.elems(), -range, range));
    std::vector<std::int32_t> labels, mix_labels;
    std::vector<float> lambda, weights;
    for (std::int64_t row = 0; row < rows; ++row) {
      labels.push_back(static_cast<std::int32_t>(below(classes)));
      mix_labels.push_back(static_cast<std::int32_t>(below(classes)));
      lambda.push_back(case_.integer("mix", 0) != 0 ? uniform(0, 1) : 1.0f);
      weights.push_back(row + case_.integer("padding", 0) >= rows ? 0.0f : 1.0f);
    }
    instance_.ints = {{graph().labels, labels}, {graph().mix_labels, mix_labels}};
    set_values(graph().mix_lambda, lambda);
    set_values(graph().sample_weights, weights);
    const TensorId metrics = graph().parts().metrics;
    instance_.outputs.push_back({metrics, rows + classes, false});
    const TensorId dlogits = gradient_output("dlogits", shape, classes);
    const std::vector<TensorId> inputs{logits, graph().labels, graph().mix_labels, graph().mix_lambda,
                                       graph().sample_weights};
    graph().add_compute(OpKind::softmax_cross_entropy, Pass::forward, params, inputs, {metrics});
    graph().add_compute(OpKind::softmax_cross_entropy, Pass::backward, params, inputs, {dlogits});
    instance_.gradients.push_back({logits, dlogits, metrics, kNoTensor, false});
  }

  template <typename T>
  void write_slot(std::int64_t offset, std::int64_t index, const T& value) {
    std::memcpy(instance_.slot_bytes.data() + offset + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
  }

  /// A slot with room for one more row than the shard has, full of random samples.
  void make_slot(const Shape& network) {
    use_shape(network);
    const std::int64_t h = case_.integer("slot_h", network.h()), w = case_.integer("slot_w", network.w());
    instance_.slot = SlotLayout::make(network.n() + 1, h, w, network.c());
    const SlotLayout& slot = instance_.slot;
    instance_.slot_bytes.resize(static_cast<std::size_t>(slot.size_bytes));
    for (std::byte& value : instance_.slot_bytes) value = static_cast<std::byte>(random_());
    draw_control();
    write_slot(slot.control_offset, 0, instance_.control);
    const std::string crop = case_.text("crop", "whole");
    for (std::int64_t row = 0; row < slot.rows; ++row) {
      SampleParams sample;
      sample.crop_h = static_cast<std::int32_t>(crop == "whole" ? h : network.h());
      sample.crop_w = static_cast<std::int32_t>(crop == "whole" ? w : network.w());
      if (crop == "resize") {
        sample.crop_h = static_cast<std::int32_t>(1 + below(2 * h));
        sample.crop_w = static_cast<std::int32_t>(1 + below(2 * w));
      }
      if (crop != "whole") {
        sample.crop_y = static_cast<std::int32_t>(below(h + 4) - h / 2 - 2);
        sample.crop_x = static_cast<std::int32_t>(below(w + 4) - w / 2 - 2);
      }
      sample.flip = static_cast<std::int32_t>(below(2));
      if (below(2) != 0) {
        sample.mix_partner = static_cast<std::int32_t>(below(network.n()));
        sample.mix_lambda = uniform(0, 1);
      }
      if (case_.integer("boxes", 0) != 0) {
        if (below(3) != 0) sample.mix_box = box_in(network);
        if (below(2) != 0) sample.erase_box = box_in(network);
      }
      if (case_.integer("colour", 0) != 0 && below(4) != 0) {
        sample.colour = 1;
        for (std::size_t i = 0; i < 12; ++i) sample.colour_map[i] = i % 4 == 3 ? uniform(-60, 60) : uniform(-0.5, 1.0);
      }
      write_slot(slot.params_offset, row, sample);
      write_slot(slot.labels_offset, row, static_cast<std::int32_t>(below(10)));
      write_slot(slot.weights_offset, row, below(4) != 0 ? 1.0f : 0.0f);
    }
  }

  std::array<std::int32_t, 4> box_in(const Shape& network) {
    const std::int64_t y = below(network.h()), x = below(network.w());
    return {static_cast<std::int32_t>(y), static_cast<std::int32_t>(x),
            static_cast<std::int32_t>(1 + below(network.h() - y)),
            static_cast<std::int32_t>(1 + below(network.w() - x))};
  }

  void unpack_slot() {
    const Shape network = case_.input_shape();
    graph().add_input_side(network.n());
    make_slot(network);
    const std::vector<TensorId> outputs{graph().labels, graph().mix_labels, graph().mix_lambda, graph().sample_weights,
                                        graph().parts().control};
    for (const TensorId id : outputs) instance_.outputs.push_back({id, 1, true});
    graph().add_compute(OpKind::unpack_slot, Pass::forward, NoParams{}, {graph().parts().slot_a}, outputs);
  }

  void normalize_input() {
    const Shape network = case_.input_shape();
    graph().add_input_side(network.n());
    make_slot(network);
    const InputParams params{{120.5f, 110.25f, 100.0f, 90.0f}, {60.0f, 70.5f, 255.0f, 1.5f}};
    const TensorId x = output("x", network, 4);
    graph().add_compute(OpKind::normalize_input, Pass::forward, params, {graph().parts().slot_a}, {x});
  }

  const OpCase& case_;
  std::mt19937_64 random_;
  OpInstance instance_;
};

}  // namespace

const std::vector<std::string>& op_case_files() {
  static const std::vector<std::string> kFiles{
      "unpack_slot", "normalize_input", "conv2d",   "linear",          "batch_norm",
      "activation",  "max_pool",        "avg_pool", "global_avg_pool", "adaptive_avg_pool",
      "add",         "concat",          "flatten",  "dropout",         "softmax_cross_entropy"};
  return kFiles;
}

OpInstance make_op_instance(const OpCase& op_case, std::uint64_t seed) { return Maker(op_case, seed).make(); }

void set_inputs(const OpInstance& instance, OpHarness& harness) {
  harness.poison();
  for (const OpInstance::FloatInput& input : instance.floats) harness.set(input.tensor, input.values);
  for (const OpInstance::IntInput& input : instance.ints) harness.set_ints(input.tensor, input.values);
  if (!instance.slot_bytes.empty()) {
    std::memcpy(harness.bytes_of(harness.graph().parts().slot_a).data(), instance.slot_bytes.data(),
                instance.slot_bytes.size());
  } else if (harness.graph().parts().control != kNoTensor) {
    harness.set_control(instance.control);
  }
}

}  // namespace renai::test
