#include "renai/plan/compile_spec.hpp"

#include <algorithm>
#include <set>

#include "renai/base/check.hpp"

namespace renai {
namespace {

std::string phase_name(std::size_t phase) {
  if (phase == 0) return "train_base";
  if (phase == 1) return "train_lowres";
  return "train_res" + std::to_string(phase + 1);
}

std::string last_name(std::size_t phase) { return phase == 0 ? "train_last" : phase_name(phase) + "_last"; }

void check_request(const SpecRequest& request) {
  for (const ResolutionPhase& phase : request.resolutions) {
    if (phase.size >= 1) continue;
    throw UserError("training resolution " + std::to_string(phase.size), "a resolution is at least one pixel",
                    "give a positive size");
  }
  if (request.val_resolution < 0) {
    throw UserError("validation resolution " + std::to_string(request.val_resolution),
                    "a resolution is at least one pixel", "give a positive size");
  }
  if (request.channels < 1) {
    throw UserError(std::to_string(request.channels) + " input channels", "an image has at least one channel",
                    "give a positive number");
  }
  if (request.train_samples == 0 && request.val_samples == 0) {
    throw DataError("no shape variants", "there is neither a training nor a validation set", "pack a data set first");
  }
}

/// Rows of a shard in the base and in the last batch; where one of the two does not occur, the other stands in.
struct Rows {
  std::int64_t base = 0, last = 0;
};

Rows shard_rows(const BatchSplit& split) {
  Rows rows{split.shard_rows, split.last_rows};
  if (split.full_batches == 0) rows.base = split.last_rows;
  if (split.last_rows == 0) rows.last = split.shard_rows;
  return rows;
}

}  // namespace

std::string ShapeId::str() const {
  if (*this == kShapeInvariant) return "invariant";
  return std::to_string(n) + "x" + std::to_string(h) + "x" + std::to_string(w) + "x" + std::to_string(c);
}

std::vector<CompileSpec> make_specs(const SpecRequest& request) {
  check_request(request);
  std::vector<CompileSpec> specs;
  const auto add = [&](std::string name, VariantKind kind, std::int64_t rows, std::int64_t size, bool last) {
    specs.push_back({std::move(name), kind, {rows, size, size, request.channels}, last});
  };
  std::vector<std::int64_t> sizes;
  for (const ResolutionPhase& phase : request.resolutions) sizes.push_back(phase.size);
  if (request.train_samples != 0) {
    RENAI_CHECK(!sizes.empty(), "a training set has at least one resolution");
    if (sizes.size() == 1) sizes.push_back(sizes[0]);
    const Rows rows = shard_rows(split_batches(request.train_samples, request.global_batch, request.logical_shards,
                                               true, request.micro_batches));
    for (std::size_t phase = 0; phase < sizes.size(); ++phase) {
      add(phase_name(phase), VariantKind::training, rows.base, sizes[phase], false);
      add(last_name(phase), VariantKind::training, rows.last, sizes[phase], true);
    }
  }
  if (request.val_samples > 0) {
    const std::int64_t batch = request.val_global_batch != 0 ? request.val_global_batch : request.global_batch;
    const Rows rows = shard_rows(split_batches(request.val_samples, batch, request.logical_shards, false));
    const std::int64_t size = request.val_resolution > 0 ? request.val_resolution : (sizes.empty() ? 0 : sizes[0]);
    if (size < 1) throw UserError("no validation resolution", "none was given", "give the size of the input images");
    add("val_base", VariantKind::validation, rows.base, size, false);
    add("val_last", VariantKind::validation, rows.last, size, true);
  }
  verify(specs);
  return specs;
}

void verify(std::span<const CompileSpec> specs) {
  RENAI_CHECK(!specs.empty(), "there is at least one shape variant");
  std::set<std::string> names;
  std::int64_t channels = specs[0].shape.c;
  for (const CompileSpec& spec : specs) {
    const ShapeId& shape = spec.shape;
    RENAI_CHECK(!spec.name.empty() && names.insert(spec.name).second, "variant names are unique: '" + spec.name + "'");
    RENAI_CHECK(shape.n > 0 && shape.h > 0 && shape.w > 0 && shape.c > 0, "variant '" + spec.name + "' has a shape");
    RENAI_CHECK(shape.c == channels, "all variants have the same input channels");
  }
}

std::string print(std::span<const CompileSpec> specs) {
  std::string text;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const CompileSpec& spec = specs[i];
    text += std::to_string(i) + " " + spec.name + " " +
            (spec.kind == VariantKind::training ? "training" : "validation") + " " + spec.shape.str() +
            (spec.last ? " last" : "") + "\n";
  }
  return text;
}

}  // namespace renai
