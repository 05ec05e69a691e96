// Synthetic images: a coarse pattern of each class's own plus noise. Integers only, so every machine makes the same.
#include <algorithm>
#include <memory>

#include "packing.hpp"
#include "renai/base/error.hpp"
#include "renai/base/philox.hpp"

namespace renai {
namespace {

constexpr std::int64_t kCells = 4;                             ///< The pattern has 4 x 4 cells.
constexpr std::uint32_t kNoise = 80;                           ///< Range of the noise around the pattern.
constexpr std::uint64_t kPatternKey = std::uint64_t{1} << 63;  ///< Keeps patterns apart from samples.

void require_positive(const char* name, std::int64_t value, std::int64_t most) {
  if (value >= 1 && value <= most) return;
  throw UserError(std::string("--") + name + " " + std::to_string(value),
                  "1 to " + std::to_string(most) + " is possible", "correct the option");
}

/// Brightness of the pattern by class, cell and channel: 64 to 191.
std::vector<std::int32_t> make_patterns(const SyntheticOptions& options) {
  std::vector<std::int32_t> patterns;
  const std::int64_t values = kCells * kCells * options.channels;
  for (std::int64_t label = 0; label < options.classes; ++label) {
    for (std::int64_t i = 0; i < values; ++i) {
      const PhiloxBlock block =
          random_block(options.seed, RandomPurpose::synthetic, kPatternKey | static_cast<std::uint64_t>(label),
                       static_cast<std::uint32_t>(i));
      patterns.push_back(static_cast<std::int32_t>(64 + block[0] % 128));
    }
  }
  return patterns;
}

/// `key` is the sample's own number over both splits.
void draw_image(const SyntheticOptions& options, std::span<const std::int32_t> pattern, std::uint64_t key,
                std::span<std::byte> image) {
  PhiloxBlock block{};
  for (std::size_t i = 0; i < image.size(); ++i) {
    if (i % 16 == 0) {
      block = random_block(options.seed, RandomPurpose::synthetic, key, static_cast<std::uint32_t>(i / 16));
    }
    const std::uint32_t byte = block[i % 16 / 4] >> (8 * (i % 4)) & 0xff;
    const std::int64_t pixel = static_cast<std::int64_t>(i) / options.channels;
    const std::int64_t y = pixel / options.width * kCells / options.height;
    const std::int64_t x = pixel % options.width * kCells / options.width;
    const std::int64_t cell = (y * kCells + x) * options.channels + static_cast<std::int64_t>(i) % options.channels;
    const std::int32_t noise = static_cast<std::int32_t>(byte * kNoise / 256) - static_cast<std::int32_t>(kNoise / 2);
    image[i] = static_cast<std::byte>(pattern[static_cast<std::size_t>(cell)] + noise);
  }
}

}  // namespace

Manifest pack_synthetic(const SyntheticOptions& synthetic, const PackOptions& options) {
  constexpr std::int64_t kMostSamples = std::int64_t{1} << 40, kMostSide = 1 << 14, kMostClasses = 1 << 20;
  require_positive("train", synthetic.train, kMostSamples);
  require_positive("height", synthetic.height, kMostSide);
  require_positive("width", synthetic.width, kMostSide);
  require_positive("channels", synthetic.channels, 4);
  require_positive("classes", synthetic.classes, kMostClasses);
  if (synthetic.val != 0) require_positive("val", synthetic.val, kMostSamples);
  PackSource source;
  source.height = synthetic.height;
  source.width = synthetic.width;
  source.channels = synthetic.channels;
  source.classes = class_names(synthetic.classes, options.classes);
  const auto patterns = std::make_shared<const std::vector<std::int32_t>>(make_patterns(synthetic));
  const auto make_split = [&](const std::string& name, std::int64_t samples, std::uint64_t parity) {
    SplitSource split{name, samples, nullptr};
    split.read = [synthetic, patterns, parity](std::int64_t first, std::span<std::int32_t> labels,
                                               std::span<std::byte> images) {
      const std::size_t sample_bytes = images.size() / labels.size();
      const auto values = static_cast<std::size_t>(kCells * kCells * synthetic.channels);
      for (std::size_t i = 0; i < labels.size(); ++i) {
        const std::int64_t index = first + static_cast<std::int64_t>(i);
        labels[i] = static_cast<std::int32_t>(index % synthetic.classes);
        draw_image(synthetic, std::span(*patterns).subspan(static_cast<std::size_t>(labels[i]) * values, values),
                   2 * static_cast<std::uint64_t>(index) + parity, images.subspan(i * sample_bytes, sample_bytes));
      }
    };
    source.splits.push_back(std::move(split));
  };
  make_split("train", synthetic.train, 0);
  if (synthetic.val > 0) make_split("val", synthetic.val, 1);
  source.settings = setting("kind", "synthetic") + setting("seed", std::to_string(synthetic.seed));
  return write_dataset(std::move(source), options);
}

}  // namespace renai
