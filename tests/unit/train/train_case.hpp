#pragma once
// What tests of `train` stand on: a synthetic set on disk and a run of one rank on the reference backend.

#include <memory>
#include <string>

#include "data_files.hpp"
#include "renai/comm/mpi.hpp"
#include "renai/device/host.hpp"
#include "renai/train/engine.hpp"
#include "renai/train/recipe.hpp"

namespace renai::testing {

/// A training split of `samples` square images in three classes, packed once for each size.
class TrainSet {
 public:
  TrainSet(std::int64_t samples, std::int64_t size, std::int64_t channels) {
    SyntheticOptions synthetic;
    synthetic.train = samples;
    synthetic.val = 0;
    synthetic.height = synthetic.width = size;
    synthetic.channels = channels;
    synthetic.classes = 3;
    PackOptions options;
    options.out = folder_ / "set";
    pack_synthetic(synthetic, options);
    dataset_ = std::make_unique<Dataset>(Dataset::open(options.out, "train"));
  }
  const Dataset& dataset() const { return *dataset_; }
  DataShape shape() const { return describe_data(dataset_->manifest(), dataset_->size(), 0); }

 private:
  Folder folder_;
  std::unique_ptr<Dataset> dataset_;
};

/// Leaves of one rank: host device, reference backend, no neighbours.
class OneRank {
 public:
  Run run() { return {device_.get(), backend_.get(), communicator_.get(), control_.get()}; }
  Device& device() { return *device_; }

 private:
  HostDeviceOptions options_;
  std::unique_ptr<Device> device_ = make_host_device(options_);
  std::unique_ptr<Backend> backend_ = make_reference_backend();
  std::unique_ptr<Communicator> communicator_ = make_self_communicator();
  std::unique_ptr<ControlGroup> control_ = make_self_control_group();
};

inline Recipe small_recipe(const std::string& model, std::int64_t batch, int shards) {
  Recipe recipe;
  recipe.model = model;
  recipe.device = "reference";
  recipe.global_batch = batch;
  recipe.logical_shards = shards;
  return recipe;
}

}  // namespace renai::testing
