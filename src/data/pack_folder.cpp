// A folder of image files.
#include <algorithm>
#include <map>
#include <memory>

#include "divide_split.hpp"
#include "folder_shard.hpp"
#include "image_tree.hpp"
#include "jpeg_encoder.hpp"
#include "packing.hpp"
#include "renai/base/digest.hpp"
#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"
#include "renai/data/sampler.hpp"
#include "renai/io/checksum.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kOrderEpoch = std::uint64_t{1} << 40;  ///< Keeps the order of packing apart from a training's.
constexpr std::int64_t kMostMeasured = 16384;                  ///< About so many images make the statistics.

void check_options(const FolderOptions& folder, const PackOptions& options) {
  constexpr std::int64_t kMostSize = 4096;
  if (folder.size < 1 || folder.size > kMostSize) {
    throw UserError("--size " + std::to_string(folder.size), "1 to 4096 is possible", "use for example 224");
  }
  constexpr int kMostThreads = 1024;
  if (options.threads < 1 || options.threads > kMostThreads) {
    throw UserError("--threads " + std::to_string(options.threads), "1 to 1024 are possible", "use one for each core");
  }
  check_division(options.division);
}

/// The next run, or the same one going on, would take a set in its input for a class.
void require_apart(const fs::path& input, const fs::path& out) {
  std::error_code unknown;  // What is wrong with a path is told by whoever uses it.
  const fs::path below = fs::weakly_canonical(out, unknown), above = fs::weakly_canonical(input, unknown);
  const fs::path inner = below.lexically_relative(above);
  if (inner.empty() || *inner.begin() == "..") return;
  throw UserError("--out " + out.string(), "it lies in the input folder " + input.string(),
                  "choose a folder beside the input");
}

/// Places of training and of validation samples.
void divide(const ImageTree& tree, const SplitDivision& division, std::vector<std::int64_t>& train,
            std::vector<std::int64_t>& val) {
  std::vector<std::int64_t> left(tree.classes.size(), 0), seen(tree.classes.size(), 0);
  for (std::int64_t i = 0; i < tree.train.size(); ++i) {
    const auto label = static_cast<std::size_t>(tree.train.label(i));
    const bool validates = is_validation(division, tree.train.path(i), seen[label]++);
    (validates ? val : train).push_back(i);
    left[label] += validates ? 0 : 1;
  }
  for (std::size_t label = 0; label < left.size(); ++label) {
    if (left[label] > 0) continue;
    throw UserError("dividing the images of class " + printable(tree.classes[label]),
                    "all of its " + std::to_string(seen[label]) + " would go to validation", "choose a smaller share");
  }
  if (val.empty()) {
    throw UserError("dividing " + std::to_string(train.size()) + " images", "none would go to validation",
                    "choose a larger share");
  }
}

/// Shards that hold a bit of everything: block after block is then nearly as good as a whole shuffle.
ImageList shuffle(const ImageList& list, std::uint64_t seed) {
  std::vector<std::int64_t> order;
  const auto count = static_cast<std::uint64_t>(list.size());
  for (std::uint64_t i = 0; i < count; ++i) {
    order.push_back(static_cast<std::int64_t>(permute(i, count, seed, kOrderEpoch)));
  }
  return list.select(order);
}

void choose_splits(ImageTree tree, const FolderOptions& folder, const PackOptions& options, FolderPack& pack) {
  const SplitDivision& division = options.division;
  if (division.fraction > 0 || division.every > 0) {
    if (tree.val.size() > 0) {
      throw UserError("dividing the training images", "the input has a folder '" + tree.val_folder + "' of its own",
                      "leave out --val-fraction and --val-every");
    }
    std::vector<std::int64_t> train, val;
    divide(tree, division, train, val);
    tree.val = tree.train.select(val);
    tree.train = tree.train.select(train);
  }
  pack.split_names.push_back("train");
  pack.splits.push_back(folder.sorted ? std::move(tree.train) : shuffle(tree.train, division.seed));
  if (tree.val.size() == 0) return;
  pack.split_names.push_back("val");
  pack.splits.push_back(std::move(tree.val));
}

std::string count_of(std::int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

void tell_what_is_left_out(const ImageTree& tree, const PackOptions& options) {
  if (!options.note || options.rank != 0) return;
  if (!tree.val_folder.empty()) options.note("validation images come from the folder '" + tree.val_folder + "'");
  if (tree.hidden > 0) options.note(count_of(tree.hidden, "hidden file") + " left out");
  if (tree.loops > 0) options.note(count_of(tree.loops, "link") + " back to a folder above not followed");
  std::string kinds;
  std::int64_t others = 0;
  for (const auto& [extension, count] : tree.other_kinds) {
    others += count;
    kinds += (kinds.empty() ? "" : ", ") + (extension.empty() ? "without extension" : printable(extension)) + " " +
             std::to_string(count);
  }
  if (others > 0) options.note(count_of(others, "file") + " of other kinds left out (" + kinds + ")");
}

std::string settings_of(const fs::path& input, const FolderOptions& folder, const PackOptions& options) {
  std::string text = setting("kind", "folder") + setting("input", input.string());
  text += setting("encoding", folder.jpeg ? "jpeg" : "raw") + setting("size", std::to_string(folder.size));
  text += setting("order", folder.sorted ? "sorted" : "shuffled");
  return text + setting("shard-samples", std::to_string(options.shard_samples)) + division_settings(options.division);
}

/// Also of the names themselves, so that two ranks that see different folders notice.
std::string describe_input(const FolderOptions& folder, const FolderPack& pack,
                           const std::vector<std::string>& classes) {
  std::string text = setting("skip-bad", folder.skip_bad ? "yes" : "no");
  Checksum128 names;
  const auto add = [&names](const std::string& name) {
    names.update(std::as_bytes(std::span(name.c_str(), name.size() + 1)));
  };
  for (const std::string& name : classes) add(name);
  for (std::size_t split = 0; split < pack.splits.size(); ++split) {
    text += setting(pack.split_names[split] + " files", std::to_string(pack.splits[split].size()));
    for (std::int64_t i = 0; i < pack.splits[split].size(); ++i) add(pack.splits[split].path(i));
  }
  return text + setting("names of the files", names.digest().hex());
}

/// A class whose files were all left out would never be learnt.
void require_all_classes(const PackPlan& plan, const std::vector<ShardSummary>& summaries) {
  std::vector<std::int64_t> counts(plan.manifest.classes.size(), 0);
  for (std::size_t i = 0; i < summaries.size(); ++i) {
    if (plan.shards[i].split != 0) continue;
    for (const auto& [label, count] : summaries[i].samples_by_class) counts[static_cast<std::size_t>(label)] += count;
  }
  for (std::size_t label = 0; label < counts.size(); ++label) {
    if (counts[label] > 0) continue;
    throw DataError("class " + printable(plan.manifest.classes[label]), "none of its training images could be used",
                    "repair its files, or remove its folder");
  }
}

void tell_what_became(const std::vector<ShardSummary>& summaries, const PackOptions& options) {
  std::int64_t encoded = 0, refused = 0;
  std::string first;
  for (const ShardSummary& summary : summaries) {
    encoded += summary.encoded_here;
    refused += static_cast<std::int64_t>(summary.refused.size());
    if (first.empty() && !summary.refused.empty()) first = summary.refused.front();
  }
  if (!options.note || options.rank != 0) return;
  if (encoded > 0) {
    options.note(count_of(encoded, "PNG image") + " encoded as JPEG, quality " + std::to_string(kEncodedQuality) +
                 ", 4:4:4; JPEG files stay as they are");
  }
  std::replace(first.begin(), first.end(), '\t', ' ');
  if (refused > 0)
    options.note(count_of(refused, "bad file") + " left out, listed in skipped.txt; the first: " + first);
}

/// As a manifest holds them. Two folders whose names differ may have one name there: \xff and the byte that it stands
/// for.
std::vector<std::string> names_of_classes(const ImageTree& tree) {
  std::vector<std::string> names;
  std::map<std::string, std::string> folder_of;
  for (const std::string& folder : tree.classes) {
    names.push_back(utf8_name(folder));
    const auto [other, added] = folder_of.emplace(names.back(), folder);
    if (added) continue;
    throw DataError("class folders " + utf8_name(printable(other->second)) + " and " + utf8_name(printable(folder)),
                    "both would be the class '" + names.back() + "'", "rename one of them");
  }
  return names;
}

}  // namespace

Manifest pack_folder(const fs::path& input, const FolderOptions& folder, const PackOptions& options) {
  check_options(folder, options);
  require_named_folder("input " + printable(input.string()), input, "name the folder of the classes");
  require_apart(input, options.out);
  ImageTree tree = list_images(input);
  tell_what_is_left_out(tree, options);
  PackPlan plan;
  plan.manifest.name = data_set_name(options.out);
  plan.manifest.encoding = folder.jpeg ? "jpeg" : "raw";
  plan.manifest.height = plan.manifest.width = folder.size;
  plan.manifest.channels = 3;
  plan.manifest.classes = names_of_classes(tree);
  FolderPack pack;
  pack.input = input;
  pack.out = options.out;
  pack.goal = {folder.jpeg, folder.size};
  pack.classes = static_cast<std::int64_t>(tree.classes.size());
  pack.threads = options.threads;
  pack.skip_bad = folder.skip_bad;
  choose_splits(std::move(tree), folder, options, pack);
  pack.measured_every = folder.jpeg ? std::max<std::int64_t>(1, pack.splits[0].size() / kMostMeasured) : 1;
  for (std::size_t split = 0; split < pack.splits.size(); ++split) {
    plan.manifest.splits.push_back({pack.split_names[split], {}});
    plan_shards(split, pack.split_names[split], pack.splits[split].size(), options.shard_samples, plan.shards);
  }
  plan.settings = pack.settings = settings_of(input, folder, options);
  plan.input = describe_input(folder, pack, plan.manifest.classes);
  plan.make = [&pack](const ShardPlan& shard, const Advance& advance) {
    return make_folder_shard(pack, shard, advance);
  };
  plan.check = [&plan, &options](const std::vector<ShardSummary>& summaries) {
    require_all_classes(plan, summaries);
    tell_what_became(summaries, options);
  };
  return run_pack(plan, options);
}

}  // namespace renai
