#pragma once
// Shards made of image files.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "image_file.hpp"
#include "image_tree.hpp"
#include "pack_run.hpp"

namespace renai {

/// What all shards of a folder's pack share.
struct FolderPack {
  std::filesystem::path input, out;
  ImageGoal goal;
  std::string settings;
  std::vector<std::string> split_names;
  std::vector<ImageList> splits;
  std::int64_t classes = 0;
  std::int64_t measured_every = 1;  ///< Of the training images in their order; statistics are over these.
  int threads = 1;
  std::shared_ptr<ImageRooms> rooms = std::make_shared<ImageRooms>();
  bool skip_bad = false;
};

/// Makes the shard, or finds it complete with its summary. Files that cannot be used are left out and listed with
/// `skip_bad`. Determinism: bytes depend on the files, their order and the goal only.
/// Errors: DataError naming the first file that cannot be used; ResourceError for the disk.
ShardSummary make_folder_shard(const FolderPack& pack, const ShardPlan& plan, const Advance& advance);

}  // namespace renai
