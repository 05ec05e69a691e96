#include "golden_run.hpp"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "renai/base/error.hpp"
#include "renai/io/hdf5.hpp"

namespace renai::test {
namespace {

template <typename T>
std::vector<T> read_all(const H5File& file, const std::string& name, DType dtype) {
  const std::vector<std::int64_t> extents = file.info(name).extents;
  std::int64_t elems = 1;
  for (const std::int64_t extent : extents) elems *= extent;
  std::vector<T> values(static_cast<std::size_t>(elems));
  file.read(name, dtype, 0, extents.at(0), std::as_writable_bytes(std::span(values)));
  return values;
}

/// Appends the rows of a [steps, ...] dataset.
template <typename T>
void append_rows(const H5File& file, const std::string& name, DType dtype, std::vector<std::vector<T>>& rows) {
  const std::vector<T> values = read_all<T>(file, name, dtype);
  const auto count = static_cast<std::size_t>(file.info(name).extents.at(0));
  const std::size_t width = values.size() / count;
  for (std::size_t row = 0; row < count; ++row) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(row * width);
    rows.emplace_back(first, first + static_cast<std::ptrdiff_t>(width));
  }
}

std::string text_of(const H5File& file, const char* key) {
  const auto text = file.string_attribute("/", key);
  if (!text) throw DataError("reading a golden file", std::string("attribute '") + key + "' is missing");
  return *text;
}

std::int64_t integer_of(const H5File& file, const char* key) {
  const auto value = file.int_attribute("/", key);
  if (!value) throw DataError("reading a golden file", std::string("attribute '") + key + "' is missing");
  return *value;
}

/// The file that begins with the momentum of `step`; it need not exist.
std::filesystem::path momentum_file(const GoldenRun& run, std::int64_t step) {
  return run.momentum_files.string() + (step < 10 ? "0" : "") + std::to_string(step) + ".h5";
}

}  // namespace

std::filesystem::path golden_folder() {
  const char* folder = std::getenv("RENAI_GOLDEN");
  return folder != nullptr ? folder : RENAI_GOLDEN_DIR;
}

std::uint64_t golden_mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

GoldenRun load_golden(const std::string& case_name, int shards, const std::string& folder) {
  const std::string base = case_name + "_v" + std::to_string(shards);
  const std::filesystem::path from = folder.empty() ? golden_folder() : std::filesystem::path(folder);
  const H5File file = H5File::open(from / (base + ".h5"));
  GoldenRun run;
  run.model = text_of(file, "model");
  if (run.model.ends_with(".toml")) run.model = (golden_folder() / run.model).string();
  run.batch = integer_of(file, "batch");
  run.steps = integer_of(file, "steps");
  run.logical_shards = static_cast<int>(integer_of(file, "logical_shards"));
  run.lr = std::stof(text_of(file, "lr"));
  run.momentum = std::stof(text_of(file, "momentum"));
  run.weight_decay = std::stof(text_of(file, "weight_decay"));
  std::istringstream names(text_of(file, "parameters"));
  for (std::string name; std::getline(names, name);) run.parameters.push_back(name);
  run.batch_key = read_all<std::int64_t>(file, "batch_key", DType::i64);
  run.loss_fp32 = read_all<double>(file, "loss_fp32", DType::f64);
  if (file.exists("loss_fp64")) {
    run.loss_fp64 = read_all<double>(file, "loss_fp64", DType::f64);
    append_rows(file, "loss_fp32_others", DType::f64, run.loss_fp32_others);
    run.final_norm_fp32 = read_all<double>(file, "final_norm_fp32", DType::f64);
    run.final_norm_fp64 = read_all<double>(file, "final_norm_fp64", DType::f64);
  }
  run.has_states = file.exists("weight_digest");
  if (!run.has_states) return run;
  append_rows(file, "weight_digest", DType::u64, run.weight_digest);
  if (file.exists("bn_running")) {
    for (const std::string& name : file.children("bn_running")) {
      append_rows(file, "bn_running/" + name, DType::f32, run.running[name]);
    }
  }
  if (file.exists("update_spread")) append_rows(file, "update_spread", DType::f64, run.update_spread);
  if (file.exists("loss_spread")) run.loss_spread = read_all<double>(file, "loss_spread", DType::f64);
  run.momentum_files = from / (base + "_momentum");
  return run;
}

std::map<std::string, std::vector<float>> load_momentum(const GoldenRun& run, std::int64_t step) {
  std::int64_t first = step;  // Of the steps in the file.
  while (first > 0 && !std::filesystem::exists(momentum_file(run, first))) --first;
  const H5File file = H5File::open(momentum_file(run, first));
  std::map<std::string, std::vector<float>> result;
  for (const std::string& name : run.parameters) {
    const std::vector<std::int64_t> extents = file.info(name).extents;
    std::int64_t elems = 1;
    for (std::size_t axis = 1; axis < extents.size(); ++axis) elems *= extents[axis];
    std::vector<float>& values = result[name];
    values.resize(static_cast<std::size_t>(elems));
    file.read(name, DType::f32, step - first, 1, std::as_writable_bytes(std::span(values)));
  }
  return result;
}

OptimizerRun load_optimizer_run(const std::string& case_name) {
  const H5File file = H5File::open(golden_folder() / ("optimizer_" + case_name + ".h5"));
  OptimizerRun run;
  run.model = (golden_folder() / "optimizer_net.toml").string();
  for (const char* key :
       {"weight_decay", "momentum", "nesterov", "beta1", "beta2", "eps", "eta", "conv1_until", "fc_after"}) {
    if (const auto text = file.string_attribute("/", key)) run.options[key] = std::stod(*text);
  }
  run.lr = read_all<float>(file, "lr", DType::f32);
  run.loss_fp32 = read_all<double>(file, "loss_fp32", DType::f64);
  run.loss_fp64 = read_all<double>(file, "loss_fp64", DType::f64);
  for (const char* group : {"weights", "momentum", "second_moment", "bn_running"}) {
    if (!file.exists(group)) continue;
    for (const std::string& name : file.children(group)) {
      const std::string key = std::string(group) + "/" + name;
      append_rows(file, key, DType::f32, run.states[key]);
    }
  }
  return run;
}

std::vector<float> initial_values(std::int64_t index, std::int64_t elems, std::int64_t fan_in, bool is_bn_scale) {
  std::vector<float> values(static_cast<std::size_t>(elems));
  for (std::size_t e = 0; e < values.size(); ++e) {
    const std::uint64_t bits = golden_mix64(static_cast<std::uint64_t>(index) << 32 | e) >> 40;
    const double u = static_cast<double>(bits) * 0x1.0p-23 - 1.0;
    if (fan_in > 0) {
      values[e] = static_cast<float>(u * std::sqrt(1.0 / static_cast<double>(fan_in)));
    } else {
      values[e] = static_cast<float>(is_bn_scale ? 1.0 + u * 0.25 : u * 0.125);
    }
  }
  return values;
}

std::vector<std::int32_t> golden_labels(std::int64_t key, std::int64_t batch) {
  std::vector<std::int32_t> labels;
  for (std::int64_t n = 0; n < batch; ++n) labels.push_back(static_cast<std::int32_t>((n * 7 + n / 10 + key * 3) % 10));
  return labels;
}

std::vector<std::uint8_t> golden_images(std::int64_t key, std::int64_t batch, std::int64_t h, std::int64_t w,
                                        std::int64_t c) {
  const std::vector<std::int32_t> labels = golden_labels(key, batch);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(batch * h * w * c));
  std::uint64_t position = 0;
  for (std::int64_t n = 0; n < batch; ++n) {
    const std::int64_t label = labels[static_cast<std::size_t>(n)];
    for (std::int64_t y = 0; y < h; ++y) {
      for (std::int64_t x = 0; x < w; ++x) {
        for (std::int64_t channel = 0; channel < c; ++channel) {
          const std::int64_t stripes =
              (label * 37 + y * (label + 3) * 5 + x * (label % 4 + 1) * 9 + channel * 50) % 192;
          const std::uint64_t noise = golden_mix64(static_cast<std::uint64_t>(key + 1) << 40 | position) >> 58;
          pixels[position++] = static_cast<std::uint8_t>(stripes + static_cast<std::int64_t>(noise));
        }
      }
    }
  }
  return pixels;
}

}  // namespace renai::test
