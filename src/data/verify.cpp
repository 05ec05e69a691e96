// Recomputing digests, and adding them to shards made elsewhere.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <set>

#include "renai/base/descriptor.hpp"
#include "renai/base/error.hpp"
#include "renai/base/failures.hpp"
#include "renai/base/file_error.hpp"
#include "renai/data/pack.hpp"
#include "renai/io/atomic_file.hpp"
#include "renai/io/directory_lock.hpp"
#include "shard_content.hpp"
#include "shard_file.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

/// A shard without a manifest does not say how many classes there are.
constexpr std::int64_t kAnyClass = std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1;

[[noreturn]] void fail_damaged(const fs::path& path, const std::string& why) {
  throw DataError("verifying " + path.string(), why, "copy or make the shard again");
}

void check_labels(const ShardFile& shard, std::span<const std::uint64_t> found) {
  if (!shard.has_label_digests()) return;
  const std::vector<std::uint64_t> expected = shard.read_label_digests();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] != found[i]) {
      fail_damaged(shard.path(), "the label of sample " + std::to_string(i) + " is not the one that was packed");
    }
  }
}

void check_samples(const ShardFile& shard, const ContentDigest& content) {
  if (!shard.has_sample_digests()) return;
  const std::vector<std::uint64_t> expected = shard.read_sample_digests();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] != content.sample_digests()[i]) {
      fail_damaged(shard.path(), "the " + std::string(shard.encoded() ? "bytes" : "pixels") + " of sample " +
                                     std::to_string(i) + " are not those that were packed");
    }
  }
}

/// Returns the content's digest. `expected` is the manifest's digest, or empty.
std::string check_shard(const ShardFile& shard, std::int64_t classes, const std::string& expected) {
  const ContentDigest content = digest_content(shard, classes);
  // Digests of labels and samples first: they say where the damage is.
  check_labels(shard, digest_labels(shard.read_labels(classes)));
  check_samples(shard, content);
  const std::string digest = content.hex();
  const std::string content_text = shard.encoded() ? "labels, offsets or bytes" : "labels or pixels";
  const auto own = shard.file().string_attribute("/", kDigestAttribute);
  if (own && *own != digest) fail_damaged(shard.path(), content_text + " differ from the shard's digest");
  if (!expected.empty() && expected != digest) {
    fail_damaged(shard.path(), content_text + " differ from the manifest's digest");
  }
  return digest;
}

std::string verify_file(const ShardFile& shard, std::int64_t classes, const std::string& expected) {
  const bool has_digest = !expected.empty() || shard.has_sample_digests() ||
                          shard.file().string_attribute("/", kDigestAttribute).has_value();
  if (!has_digest) {
    throw DataError("verifying " + shard.path().string(), "it has no digests", "add them with `renai verify --adopt`");
  }
  const std::string digest = check_shard(shard, classes, expected);
  return shard.path().string() + ": " + std::to_string(shard.samples()) + " samples, digest right (" + digest + ")\n";
}

[[noreturn]] void fail_copying(const fs::path& path, int error) {
  fail_writing("copying " + path.string(), error, "the folder needs room for one shard more");
}

/// By hand: the standard library's copy calls every failure that comes in the middle an input/output error.
void copy_shard(const fs::path& from, const fs::path& to) {
  constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
  const Descriptor in(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!in || ::fstat(in.get(), &status) != 0) fail_reading("copying " + from.string(), errno);
  Descriptor out(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, status.st_mode & 0777));
  if (!out) fail_copying(from, errno);
  std::vector<std::byte> block(kBlockBytes);
  for (;;) {
    const ssize_t got = ::read(in.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_reading("copying " + from.string(), errno);
    if (got == 0) break;
    for (ssize_t at = 0; at < got;) {
      const ssize_t written = ::write(out.get(), block.data() + at, static_cast<std::size_t>(got - at));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_copying(from, errno);
      at += written;
    }
  }
  if (::close(out.release()) != 0) fail_copying(from, errno);
}

/// Adds what is missing to a copy and puts it in the shard's place. Refuses content that contradicts a digest it has.
std::string adopt_file(const fs::path& path, std::int64_t classes, const std::string& expected) {
  std::string digest;
  std::vector<std::uint64_t> sample_digests, label_digests;
  bool add_samples = false, add_labels = false;
  {
    const ShardFile shard = ShardFile::open(path);
    digest = check_shard(shard, classes, expected);
    add_samples = !shard.has_sample_digests();
    add_labels = !shard.has_label_digests();
    if (!add_samples && !add_labels && shard.file().string_attribute("/", kDigestAttribute)) return digest;
    if (add_samples) sample_digests = digest_content(shard, classes).sample_digests();
    if (add_labels) label_digests = digest_labels(shard.read_labels(classes));
  }
  // A link to a shard stays one: what it leads to is replaced.
  replace_file(fs::canonical(path), [&](const fs::path& temporary) {
    copy_shard(path, temporary);
    std::error_code error;
    fs::permissions(temporary, fs::perms::owner_write, fs::perm_options::add, error);
    H5File file = H5File::modify(temporary);
    const auto add = [&file](const std::string& name, const std::vector<std::uint64_t>& digests) {
      const auto samples = static_cast<std::int64_t>(digests.size());
      file.write_all(name, DType::u64, {&samples, 1}, std::as_bytes(std::span(digests)));
    };
    if (add_samples) add(kSampleDigests, sample_digests);
    if (add_labels) add(kLabelDigests, label_digests);
    file.set_attribute("/", kDigestAttribute, digest);
    file.close();
  });
  return digest;
}

void require_set(const fs::path& path) { require_named("data set " + path.string(), path, "check the path"); }

}  // namespace

std::string verify_dataset(const fs::path& path) {
  require_set(path);
  if (!fs::is_directory(path)) return verify_file(ShardFile::open(path), kAnyClass, {});
  const Manifest manifest = load_manifest(path);
  std::string text;
  Failures failures;
  for (const SplitInfo& split : manifest.splits) {
    for (const ShardInfo& info : split.shards) {
      failures.collect([&] {
        const ShardFile shard = ShardFile::open(path / info.file);
        shard.check_against(manifest, split.name, info);
        text += verify_file(shard, static_cast<std::int64_t>(manifest.classes.size()), info.digest);
      });
    }
  }
  failures.raise("verifying " + path.string(), "shards");
  for (const SplitInfo& split : manifest.splits) {
    if (split.samples() > 0) continue;
    throw DataError("verifying split '" + split.name + "' of data set " + path.string(),
                    "it has no samples, so there is nothing to check and nothing to train on",
                    "pack the set again, or take the split out of " + std::string(kManifestFile));
  }
  return text;
}

namespace {

/// Copies of shards, and of the manifest, that a killed program left half-written. Who writes such files holds the
/// folder, so nobody does; what other programs call theirs is left alone.
void remove_partials(const fs::path& directory, const Manifest& manifest) {
  std::set<std::string> names{std::string(kManifestFile)};
  for (const SplitInfo& split : manifest.splits) {
    for (const ShardInfo& info : split.shards) names.insert(info.file);
  }
  remove_temporaries(directory, [&names](const std::string& name) { return names.contains(name); });
}

/// Adopting a shard leaves the others to others, but not to a program that may write this one, too.
DirectoryLock hold(const fs::path& path, const fs::path& directory, Hold kind) {
  DirectoryLock lock = lock_directory(directory, kind);
  if (lock.error == EWOULDBLOCK) {
    throw UserError("adopting " + path.string(), "another program packs or adopts there",
                    "wait until it has ended; adopting is for one rank");
  }
  return lock;
}

}  // namespace

void adopt_dataset(const fs::path& path) {
  require_set(path);
  if (!fs::is_directory(path)) {
    const fs::path directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
    const DirectoryLock lock = hold(path, directory, Hold::shared);
    adopt_file(path, kAnyClass, {});
    return;
  }
  const DirectoryLock lock = hold(path, path, Hold::alone);
  // Only now: until it let go, another program may have changed it.
  Manifest manifest = load_manifest(path);
  if (lock.error == 0) remove_partials(path, manifest);
  bool changed = false;
  Failures failures;
  for (SplitInfo& split : manifest.splits) {
    for (ShardInfo& info : split.shards) {
      failures.collect([&] {
        ShardFile::open(path / info.file).check_against(manifest, split.name, info);
        const std::string digest =
            adopt_file(path / info.file, static_cast<std::int64_t>(manifest.classes.size()), info.digest);
        changed = changed || info.digest.empty();
        info.digest = digest;
      });
    }
  }
  failures.raise("adopting " + path.string(), "shards");
  if (changed) save_manifest(manifest, path);
}

}  // namespace renai
