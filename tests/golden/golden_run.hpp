#pragma once
// A stored training run of PyTorch (see README.md) and the formulas that its files leave out.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace renai::test {

struct GoldenRun {
  std::string model;  ///< Zoo name or path of a TOML file.
  std::int64_t batch = 0, steps = 0;
  int logical_shards = 1;
  float lr = 0, momentum = 0, weight_decay = 0;
  std::vector<std::string> parameters;
  std::vector<std::int64_t> batch_key;
  std::vector<double> loss_fp32, loss_fp64, final_norm_fp32, final_norm_fp64;
  std::vector<std::vector<double>> loss_fp32_others;  ///< By set of kernels, then step.
  bool has_states = false;
  /// By name, then step: running statistics after the step.
  std::map<std::string, std::vector<std::vector<float>>> running;
  std::filesystem::path momentum_files;  ///< Folder and start of the names of the files that hold the momentum.
  std::vector<std::vector<std::uint64_t>> weight_digest;  ///< By step, then parameter.
  /// By step, then parameter: how far the updates of PyTorch's own kernels are apart from the same state, over the
  /// update's norm. Only in runs made with `--states`.
  std::vector<std::vector<double>> update_spread;
  std::vector<double> loss_spread;  ///< By step: the same of the loss.
};

/// A stored run of an optimizer (README.md, "Optimizers"). States by "GROUP/NAME", then step; row 0 is the start.
struct OptimizerRun {
  std::string model;
  std::int64_t batch = 16;
  std::map<std::string, double> options;  ///< weight_decay and what the optimizer takes.
  std::vector<float> lr;                  ///< By step.
  std::vector<double> loss_fp32, loss_fp64;
  std::map<std::string, std::vector<std::vector<float>>> states;
};
/// Reads optimizer_<case>.h5. Errors: DataError.
OptimizerRun load_optimizer_run(const std::string& case_name);

/// Where the golden files lie: beside the source, or where RENAI_GOLDEN says when the test was built elsewhere.
std::filesystem::path golden_folder();
/// The finaliser of splitmix64, which all formulas draw from.
std::uint64_t golden_mix64(std::uint64_t x);

/// Reads `<case>_v<shards>.h5` from `folder` or from where the committed ones lie. Errors: DataError.
GoldenRun load_golden(const std::string& case_name, int shards, const std::string& folder = {});
/// PyTorch's momentum after a step of a run with states, by name. Errors: DataError.
std::map<std::string, std::vector<float>> load_momentum(const GoldenRun& run, std::int64_t step);

/// Start value of a parameter in PyTorch's layout. `extents` are PyTorch's; `fan_in` is that of its layer's weight;
/// 0 for batch norm.
std::vector<float> initial_values(std::int64_t index, std::int64_t elems, std::int64_t fan_in, bool is_bn_scale);

std::vector<std::int32_t> golden_labels(std::int64_t key, std::int64_t batch);
/// uint8 [batch, h, w, c].
std::vector<std::uint8_t> golden_images(std::int64_t key, std::int64_t batch, std::int64_t h, std::int64_t w,
                                        std::int64_t c);

}  // namespace renai::test
