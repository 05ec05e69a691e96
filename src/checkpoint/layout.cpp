// Stored layouts to logical ones and back.
#include <numeric>

#include "renai/base/check.hpp"
#include "renai/checkpoint/state_dict.hpp"

namespace renai {
namespace {

/// Elements of a row; checks that `values` are whole rows.
std::int64_t row_elems(std::size_t values, std::span<const FeaturePart> parts) {
  const std::int64_t row =
      std::accumulate(parts.begin(), parts.end(), std::int64_t{0}, [](std::int64_t sum, const FeaturePart& part) {
        RENAI_CHECK(part.h >= 1 && part.w >= 1 && part.c >= 1, "an empty part");
        return sum + part.h * part.w * part.c;
      });
  RENAI_CHECK(row > 0 && static_cast<std::int64_t>(values) % row == 0, "values are not rows of these parts");
  return row;
}

/// move(stored, logical) for the places of every element.
template <typename Move>
void for_each_place(std::size_t values, std::span<const FeaturePart> parts, const Move& move) {
  const std::int64_t rows = static_cast<std::int64_t>(values) / row_elems(values, parts);
  std::int64_t first = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (const FeaturePart& part : parts) {
      const std::int64_t pixels = part.h * part.w;
      for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
        for (std::int64_t c = 0; c < part.c; ++c) {
          move(static_cast<std::size_t>(first + pixel * part.c + c),
               static_cast<std::size_t>(first + c * pixels + pixel));
        }
      }
      first += pixels * part.c;
    }
  }
}

}  // namespace

std::vector<float> to_logical(std::span<const float> stored, std::span<const FeaturePart> parts) {
  std::vector<float> logical(stored.size());
  for_each_place(stored.size(), parts, [&](std::size_t from, std::size_t to) { logical[to] = stored[from]; });
  return logical;
}

std::vector<float> to_stored(std::span<const float> logical, std::span<const FeaturePart> parts) {
  std::vector<float> stored(logical.size());
  for_each_place(logical.size(), parts, [&](std::size_t to, std::size_t from) { stored[to] = logical[from]; });
  return stored;
}

}  // namespace renai
