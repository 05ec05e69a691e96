#include "data_cache.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "renai/base/elapsed.hpp"
#include "renai/base/error.hpp"
#include "renai/base/memory.hpp"
#include "renai/base/text.hpp"
#include "renai/data/page_cache.hpp"

namespace renai {
namespace {

FileSet files_of(const Recipe& recipe) {
  FileSet files;
  files.add(recipe.data, load_manifest(recipe.data), "train");
  const std::string& val = recipe.val_data.empty() ? recipe.data : recipe.val_data;
  files.add(val, load_manifest(val), "val");
  return files;
}

void require_room(const FileSet& files) {
  const std::int64_t available = cacheable_memory_bytes();
  constexpr std::int64_t kTenths = 8;  // The rest is for the program itself.
  if (available < 0 || files.size_bytes <= available / 10 * kTenths) return;
  throw UserError("--cache",
                  "the data set has " + format_bytes(files.size_bytes) + ", this host has " + format_bytes(available) +
                      " of memory free",
                  "leave out --cache, or use --shuffle block, whose windows fit");
}

}  // namespace

void fill_cache(World& world, const Recipe& recipe) {
  if (!recipe.cache) return;
  const auto start = std::chrono::steady_clock::now();
  const FileSet files = files_of(recipe);
  require_room(files);
  const auto& places = world.topology().places;
  const RankPlace own = places.empty() ? RankPlace{} : places[static_cast<std::size_t>(world.rank())];
  CacheFiller filler(files, own.local_rank, std::max(1, own.local_size));
  // Word from everybody again and again: reading may take longer than ranks wait for each other.
  for (bool all = false; !all;) {
    for (int look = 0; look < 20 && !filler.done(); ++look) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::vector<std::string> words =
        world.control().all_gather(filler.done() ? "done" : "more", "filling the cache");
    all = std::find(words.begin(), words.end(), "more") == words.end();
  }
  const double seconds = seconds_since(start);
  world.log().info("cache: " + format_bytes(files.size_bytes) + " of " + std::to_string(files.paths.size()) +
                   " shards in memory in " + std::to_string(static_cast<int>(seconds * 10) / 10) + "." +
                   std::to_string(static_cast<int>(seconds * 10) % 10) + " s");
}

}  // namespace renai
