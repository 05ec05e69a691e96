// renai pack: options of a kind, progress, what was made.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "commands.hpp"
#include "renai/base/error.hpp"
#include "renai/base/host.hpp"

namespace renai {
namespace {

/// The cores this rank may use, shared with the ranks of its host.
int share_of_cores(World& world) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const int count = ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
  // A launcher that pins ranks has divided the cores already; the set itself tells.
  std::string own = host_name();
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &cores)) own += " " + std::to_string(core);
  }
  const std::vector<std::string> all = world.control().all_gather(own, "packing");
  return std::max(1, count / static_cast<int>(std::count(all.begin(), all.end(), own)));
}

std::string format_duration(double seconds) {
  const long long whole = std::llround(seconds);
  char text[64];
  if (whole < 3600) {
    std::snprintf(text, sizeof(text), "%lld:%02lld", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof(text), "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return text;
}

/// One line that is written over on a terminal; elsewhere a line every ten seconds.
class ProgressLine {
 public:
  void show(const PackProgress& progress) {
    constexpr double kBetweenLines = 10;
    const bool due = progress.seconds - shown_ >= kBetweenLines;
    if (terminal_ ? progress.seconds < 0.5 : !due) return;
    shown_ = progress.seconds;
    const double share = progress.all_samples > 0
                             ? static_cast<double>(progress.samples) / static_cast<double>(progress.all_samples)
                             : 1;
    const std::string left = share > 0 ? format_duration(progress.seconds * (1 - share) / share) : "unknown";
    const std::string refused = progress.refused > 0 ? ", " + std::to_string(progress.refused) + " bad" : "";
    std::fprintf(stderr, "%spacked %lld of %lld samples (%.0f %%), %lld of %lld shards%s, %.0f/s, ETA %s%s",
                 terminal_ ? "\r" : "", static_cast<long long>(progress.samples),
                 static_cast<long long>(progress.all_samples), 100 * share, static_cast<long long>(progress.shards),
                 static_cast<long long>(progress.all_shards), refused.c_str(),
                 static_cast<double>(progress.samples) / std::max(progress.seconds, 1e-3), left.c_str(),
                 terminal_ ? "   " : "\n");
    if (terminal_ && progress.ended) std::fputs("\n", stderr);
    std::fflush(stderr);
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  double shown_ = 0;
};

void resolve(World& world, PackArguments& arguments) {
  PackOptions& options = arguments.options;
  if (options.out.empty()) throw UserError("--out", "it is empty", "name a folder for the set");
  const bool folder = arguments.kind == "folder";
  options.shard_samples = arguments.shard_samples.value_or(folder ? 2048 : 8192);
  options.threads = arguments.threads > 0 ? arguments.threads : share_of_cores(world);
  arguments.folder.jpeg = arguments.encoding == "jpeg";
  arguments.folder.sorted = arguments.order == "sorted";
  arguments.folder.size = arguments.size.value_or(arguments.folder.jpeg ? 224 : 256);
}

Manifest pack(const PackArguments& arguments) {
  if (arguments.kind == "idx") return pack_idx(arguments.input, arguments.options);
  if (arguments.kind == "cifar") return pack_cifar(arguments.input, arguments.options);
  if (arguments.kind == "folder") return pack_folder(arguments.input, arguments.folder, arguments.options);
  if (arguments.kind == "hdf5") return pack_hdf5(arguments.input, arguments.hdf5, arguments.options);
  return pack_synthetic(arguments.synthetic, arguments.options);
}

void print_made(const Manifest& manifest, const std::filesystem::path& out) {
  for (const SplitInfo& split : manifest.splits) {
    if (manifest.encoding == "jpeg") {
      std::printf("%s: %lld JPEG images in %zu shards\n", split.name.c_str(), static_cast<long long>(split.samples()),
                  split.shards.size());
      continue;
    }
    std::printf("%s: %lld samples of %lldx%lldx%lld in %zu shards\n", split.name.c_str(),
                static_cast<long long>(split.samples()), static_cast<long long>(manifest.height),
                static_cast<long long>(manifest.width), static_cast<long long>(manifest.channels), split.shards.size());
  }
  std::printf("%zu classes, digest %s, in %s\n", manifest.classes.size(), manifest.digest().c_str(), out.c_str());
}

}  // namespace

int command_pack(World& world, PackArguments arguments) {
  PackOptions& options = arguments.options;
  options.rank = world.rank();
  options.world_size = world.world_size();
  options.gather = [&world](const std::string& text) { return world.control().all_gather(text, "packing"); };
  ProgressLine line;
  options.progress = [&line](const PackProgress& progress) { line.show(progress); };
  options.note = [&world](const std::string& text) { world.log().info(text); };
  resolve(world, arguments);
  const Manifest manifest = pack(arguments);
  world.control().barrier("the end of packing");
  if (world.rank() == 0) print_made(manifest, options.out);
  return 0;
}

}  // namespace renai
