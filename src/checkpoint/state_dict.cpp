#include "renai/checkpoint/state_dict.hpp"

#include <algorithm>

#include "renai/base/digest.hpp"

namespace renai {
namespace {

/// Everything about a tensor but its values.
std::string heading(const std::string& group, const StateTensor& tensor) {
  std::string text = group + '\0' + tensor.name + '\0' + std::string(dtype_name(tensor.dtype));
  for (const std::int64_t extent : tensor.extents) text += '\0' + std::to_string(extent);
  return text;
}

}  // namespace

const StateTensor* StateDict::find(const std::string& group, const std::string& name) const {
  const auto found = groups.find(group);
  if (found == groups.end()) return nullptr;
  for (const StateTensor& tensor : found->second) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

std::string StateDict::digest() const {
  std::vector<Digest128> parts;
  for (const auto& [group, tensors] : groups) {
    parts.push_back(hash128(group));
    // A file lists its tensors by name whatever the order in which they were written.
    std::vector<const StateTensor*> sorted;
    for (const StateTensor& tensor : tensors) sorted.push_back(&tensor);
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
    for (const StateTensor* tensor : sorted) {
      parts.push_back(hash128(heading(group, *tensor)));
      parts.push_back(hash128(tensor->data));
    }
  }
  return combine_digests(parts).hex();
}

}  // namespace renai
