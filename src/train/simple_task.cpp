#include "renai/train/simple_task.hpp"

#include "renai/base/check.hpp"

namespace renai {
namespace {

Blueprint simple_blueprint(ComputationGraph graph, std::vector<Shape> shapes, Backend& backend) {
  CompileSpec spec;
  spec.name = "simple";
  spec.shape = ShapeId{1, 1, 1, 1};
  std::vector<CompileSpec> specs{spec};
  ShapeTable table{std::move(shapes)};
  KernelBook book = backend.survey(graph, table, specs);
  verify(book, graph, 1);
  PlanRequest request;
  request.graph = &graph;
  request.book = &book;
  request.specs = specs;
  request.shapes = &table;
  request.slot = SlotLayout::make(1, 1, 1, 1);
  request.reuse_slots = false;  // every tensor can be set before and read after a run
  std::vector<MemoryPlan> plans = build_memory_plans(request);
  verify(request, plans);
  GraphAtlas atlas = build_atlas(graph, specs);
  const SlotLayout slot = request.slot;
  return Blueprint{
      std::move(graph), std::move(specs), std::move(table), std::move(book), std::move(plans), std::move(atlas), slot};
}

}  // namespace

struct SimpleTask::Impl {
  Blueprint blueprint;
  Engine engine;
  Impl(ComputationGraph graph, std::vector<Shape> shapes, const Run& run)
      : blueprint(simple_blueprint(std::move(graph), std::move(shapes), *run.backend)), engine(blueprint, run) {}

  const DTensor& place(TensorId tensor) const {
    const DTensor& found = blueprint.plans.front().tensor(tensor);
    const bool plain = found.placed() && found.dtype == DType::f32 && found.size_bytes >= 4 * found.shape.elems() &&
                       (found.shape.rank() == 0 || found.padded_c <= found.shape[found.shape.rank() - 1]);
    RENAI_CHECK(plain, "'" + blueprint.graph.tensor(tensor).name + "' is stored as f32 without padding");
    return found;
  }
};

SimpleTask::SimpleTask(ComputationGraph graph, std::vector<Shape> shapes, const Run& run)
    : impl_(std::make_unique<Impl>(std::move(graph), std::move(shapes), run)) {}
SimpleTask::~SimpleTask() = default;

void SimpleTask::set(TensorId tensor, std::span<const float> values) {
  const DTensor& place = impl_->place(tensor);
  RENAI_CHECK(static_cast<std::int64_t>(values.size()) == place.shape.elems(),
              "values fill the tensor's shape " + place.shape.str());
  impl_->engine.upload(place.offset_bytes, std::as_bytes(values));
}

std::vector<float> SimpleTask::get(TensorId tensor) {
  const DTensor& place = impl_->place(tensor);
  std::vector<float> values(static_cast<std::size_t>(place.shape.elems()));
  impl_->engine.download(place.offset_bytes, std::as_writable_bytes(std::span(values)));
  return values;
}

void SimpleTask::launch() { impl_->engine.launch(0, GraphId::SIMPLE_TASK_GRAPH); }

void SimpleTask::synchronize() {
  for (int i = 0; i < kStreamCount; ++i) impl_->engine.stream(static_cast<StreamId>(i)).synchronize();
}

void SimpleTask::run() {
  launch();
  synchronize();
}

}  // namespace renai
