// StateDict <-> HDF5. Layout: one group for each state, one dataset for each tensor, texts as attributes of the root
// (or, when long, as datasets of bytes in the group `texts`), attributes `renai_format`, `text_keys` and `digest`.
#include <algorithm>
#include <set>
#include <sstream>

#include "renai/base/check.hpp"
#include "renai/base/digest.hpp"
#include "renai/base/error.hpp"
#include "renai/checkpoint/state_dict.hpp"
#include "renai/io/atomic_file.hpp"
#include "renai/io/hdf5.hpp"
#include "seal.hpp"

namespace renai {
namespace {

constexpr const char* kRoot = "/";
constexpr const char* kFormat = "checkpoint-1";
constexpr const char* kTextGroup = "texts";
constexpr const char* kTextKeys = "text_keys";
constexpr std::size_t kLongTextBytes = 60'000;  // HDF5 stores attributes up to 64 KiB.

/// Bytes that one byte of a file can expand to: the most that deflate reaches.
constexpr std::int64_t kMaxExpansion = 1032;

std::int64_t elems_of(const std::vector<std::int64_t>& extents) {
  std::int64_t elems = 1;
  for (const std::int64_t extent : extents) elems *= extent;
  return elems;
}

[[noreturn]] void fail_damaged(const std::filesystem::path& path, const std::string& why) {
  throw DataError("reading checkpoint " + path.string(), why, "use another checkpoint of the run");
}

/// Over tensors and texts: what the attribute `digest` holds.
std::string file_digest(const StateDict& state) {
  std::vector<Digest128> parts{hash128(state.digest())};
  for (const auto& [key, text] : state.texts) {
    parts.push_back(hash128(key));
    parts.push_back(hash128(text));
  }
  return combine_digests(parts).hex();
}

void check_state(const StateDict& state) {
  for (const auto& [group, tensors] : state.groups) {
    RENAI_CHECK(!group.empty() && group != kTextGroup && group.find('/') == std::string::npos, "group name " + group);
    std::set<std::string> names;
    for (const StateTensor& tensor : tensors) {
      const std::string name = group + "/" + tensor.name;
      RENAI_CHECK(!tensor.name.empty() && tensor.name != "." && tensor.name.find('/') == std::string::npos, name);
      RENAI_CHECK(names.insert(tensor.name).second, name + " occurs twice");
      RENAI_CHECK(static_cast<std::int64_t>(tensor.data.size()) == elems_of(tensor.extents) * dtype_bytes(tensor.dtype),
                  name + ": bytes do not match the extents");
    }
  }
  for (const auto& [key, text] : state.texts) {
    RENAI_CHECK(!key.empty() && key.find_first_of("/\n.") == std::string::npos, "text key " + key);
    RENAI_CHECK(text.find('\0') == std::string::npos, "text " + key + " holds a zero byte");
  }
}

void write_texts(H5File& file, const StateDict& state) {
  std::string keys;
  bool has_group = false;
  for (const auto& [key, text] : state.texts) {
    keys += key + "\n";
    if (text.size() < kLongTextBytes) {
      file.set_attribute(kRoot, "text_" + key, text);
      continue;
    }
    if (!has_group) file.create_group(kTextGroup);
    has_group = true;
    const std::int64_t extent = static_cast<std::int64_t>(text.size());
    file.write_all(std::string(kTextGroup) + "/" + key, DType::u8, {&extent, 1}, std::as_bytes(std::span(text)));
  }
  file.set_attribute(kRoot, kTextKeys, keys);
}

void write_file(const std::filesystem::path& path, const StateDict& state) {
  H5File file = H5File::create(path);
  file.set_attribute(kRoot, "renai_format", std::string(kFormat));
  for (const auto& [group, tensors] : state.groups) {
    file.create_group(group);
    for (const StateTensor& tensor : tensors) {
      file.write_all(group + "/" + tensor.name, tensor.dtype, tensor.extents, tensor.data);
    }
  }
  write_texts(file, state);
  file.set_attribute(kRoot, "digest", file_digest(state));
  file.close();
}

/// An open file, with what its tensors can hold: damaged extents must not ask for all memory.
struct Source {
  const std::filesystem::path& path;
  H5File file;
  std::int64_t limit_bytes;
};

Source open_source(const std::filesystem::path& path) {
  H5File file = H5File::open(path);
  return {path, std::move(file), static_cast<std::int64_t>(std::filesystem::file_size(path)) * kMaxExpansion};
}

StateTensor read_tensor(const Source& source, const std::string& dataset, std::string name, DType dtype,
                        std::vector<std::int64_t> extents) {
  std::int64_t size_bytes = dtype_bytes(dtype);
  for (const std::int64_t extent : extents) {
    if (extent < 0 || (extent > 0 && size_bytes > source.limit_bytes / extent)) {
      fail_damaged(source.path, "dataset '" + dataset + "' claims to be larger than the file can be");
    }
    size_bytes *= extent;
  }
  StateTensor tensor{std::move(name), dtype, std::move(extents), {}};
  tensor.data.resize(static_cast<std::size_t>(size_bytes));
  if (tensor.data.empty()) return tensor;
  source.file.read(dataset, dtype, 0, tensor.extents.empty() ? 1 : tensor.extents.front(), tensor.data);
  return tensor;
}

std::string read_text_value(const Source& source, const std::string& key) {
  const H5File& file = source.file;
  if (auto text = file.string_attribute(kRoot, "text_" + key)) return *text;
  const std::string dataset = std::string(kTextGroup) + "/" + key;
  if (!file.exists(dataset)) fail_damaged(source.path, "the text '" + key + "' is missing");
  const StateTensor bytes = read_tensor(source, dataset, key, DType::u8, file.info(dataset).extents);
  return std::string(reinterpret_cast<const char*>(bytes.data.data()), bytes.data.size());
}

StateDict read_own(const Source& source) {
  const H5File& file = source.file;
  StateDict state;
  for (const std::string& group : file.children(kRoot)) {
    if (group == kTextGroup) continue;
    auto& tensors = state.groups[group];
    for (const std::string& name : file.children(group)) {
      const std::string dataset = group + "/" + name;
      const H5DatasetInfo info = file.info(dataset);
      tensors.push_back(read_tensor(source, dataset, name, info.dtype, info.extents));
    }
  }
  std::istringstream keys(file.string_attribute(kRoot, kTextKeys).value_or(""));
  for (std::string key; std::getline(keys, key);) state.texts[key] = read_text_value(source, key);
  return state;
}

bool is_dataset(const H5File& file, const std::string& name) {
  try {
    static_cast<void>(file.info(name));
    return true;
  } catch (const DataError&) {
    return false;
  }
}

/// Puts a dataset of another program where renai keeps tensors of its name.
void adopt(const Source& source, const std::string& dataset, const std::string& name, StateDict& state) {
  if (name.ends_with("num_batches_tracked")) return;
  const H5DatasetInfo info = source.file.info(dataset);
  if (!info.convertible) return;
  const bool wide = info.dtype == DType::f64 || info.dtype == DType::f16 || info.dtype == DType::bf16;
  const bool running = name.ends_with(".running_mean") || name.ends_with(".running_var");
  state.groups[running ? "bn_running" : "weights"].push_back(
      read_tensor(source, dataset, name, wide ? DType::f32 : info.dtype, info.extents));
}

StateDict read_foreign(const Source& source) {
  const H5File& file = source.file;
  StateDict state;
  const bool grouped = file.exists("weights") && !is_dataset(file, "weights");
  for (const std::string& name : file.children(grouped ? "weights" : kRoot)) {
    const std::string dataset = grouped ? "weights/" + name : name;
    if (is_dataset(file, dataset)) adopt(source, dataset, name, state);
  }
  if (grouped && file.exists("bn_running") && !is_dataset(file, "bn_running")) {
    for (const std::string& name : file.children("bn_running")) adopt(source, "bn_running/" + name, name, state);
  }
  if (!state.groups.contains("weights")) {
    throw DataError("reading checkpoint " + source.path.string(), "it holds no tensors",
                    "store them in a group 'weights' or at the root");
  }
  return state;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const StateDict& state) {
  check_state(state);
  replace_file(path, [&](const std::filesystem::path& temporary) {
    write_file(temporary, state);
    append_seal(temporary);
  });
}

StateDict load_checkpoint(const std::filesystem::path& path, bool require_digest) {
  const SealState seal = check_seal(path);
  if (seal == SealState::broken) fail_damaged(path, "its bytes are not those that were written (digest differs)");
  const Source source = open_source(path);
  const auto digest = source.file.string_attribute(kRoot, "digest");
  if (!digest) {
    if (require_digest) fail_damaged(path, "it has no digest: truncated, or written by another program");
    return read_foreign(source);
  }
  StateDict state = read_own(source);
  if (file_digest(state) != *digest) fail_damaged(path, "its contents differ from what was written (digest differs)");
  return state;
}

}  // namespace renai
