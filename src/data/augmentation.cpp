#include "renai/data/augmentation.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "draws.hpp"
#include "renai/base/error.hpp"
#include "renai/base/philox.hpp"
#include "renai/base/text.hpp"

namespace renai {
namespace {

constexpr std::string_view kCrop = "crop", kResizedCrop = "resized-crop", kColour = "colour";
constexpr std::int64_t kWidestPad = 1024;
constexpr double kLeastScale = 0.01, kUsualScale = 0.08, kLeastColour = 0.001, kUsualColour = 0.4;
constexpr const char* kForms =
    "write none, or a list of flip, cropN, resized-crop and colour, such as crop4,flip or "
    "resized-crop0.35,flip,colour0.4";

/// N of "cropN", or 0.
std::int64_t crop_pixels(std::string_view word) {
  if (!word.starts_with(kCrop)) return 0;
  word.remove_prefix(kCrop.size());
  std::int64_t pixels = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), pixels);
  return error == std::errc{} && end == word.data() + word.size() && pixels >= 1 && pixels <= kWidestPad ? pixels : 0;
}

/// A name and a number, of whatever size.
bool is_numbered(std::string_view word, std::string_view name) {
  return word.starts_with(name) && word.find_first_not_of("-.0123456789", name.size()) == std::string_view::npos;
}

/// S of a name followed by nothing or a number; nothing for other words and numbers outside of [least, 1].
std::optional<double> share_of(std::string_view word, std::string_view name, double usual, double least) {
  if (!is_numbered(word, name)) return std::nullopt;
  word.remove_prefix(name.size());
  if (word.empty()) return usual;
  double share = -1.0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), share);
  const bool right = error == std::errc{} && end == word.data() + word.size() && share >= least && share <= 1.0;
  return right ? std::optional(share) : std::nullopt;
}

/// Shortest decimal form that gives the number back.
std::string share_text(double share) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, share);
  return {text, end};
}

[[noreturn]] void refuse(const std::string& text, const std::string& word) {
  const std::string option = "--augment " + text;
  const bool alone = word == text;
  if (word == "none") throw UserError(option, "'none' goes with no other word", kForms);
  if (word.empty()) throw UserError(option, "a word between commas is missing", kForms);
  if (crop_pixels(word) > 0 || word == "flip" || share_of(word, kResizedCrop, kUsualScale, kLeastScale) ||
      share_of(word, kColour, kUsualColour, kLeastColour)) {
    throw UserError(option, "'" + word + "' comes on top of another", kForms);
  }
  if (is_numbered(word, kCrop)) {
    throw UserError(option, "the N of '" + word + "' does not lie between 1 and " + std::to_string(kWidestPad), kForms);
  }
  if (is_numbered(word, kResizedCrop)) {
    throw UserError(option, "the least scale in '" + word + "' does not lie between 0.01 and 1", kForms);
  }
  if (is_numbered(word, kColour)) {
    throw UserError(option, "the strength in '" + word + "' does not lie between 0.001 and 1", kForms);
  }
  std::vector<std::string> known{"flip", "crop4", "resized-crop", "colour"};
  if (alone) known.emplace_back("none");
  throw UserError(option, "'" + word + "' is not known", suggest_name(word, known));
}

/// Whether the word was one that is new to the augmentation.
bool take_word(const std::string& word, Augmentation& augmentation) {
  const bool cropped = augmentation.pad > 0 || augmentation.resized_crop;
  if (const std::int64_t pixels = crop_pixels(word); pixels > 0 && !cropped) {
    augmentation.pad = pixels;
  } else if (const auto scale = share_of(word, kResizedCrop, kUsualScale, kLeastScale); scale && !cropped) {
    augmentation.resized_crop = true;
    augmentation.min_scale = *scale;
  } else if (word == "flip" && !augmentation.flip) {
    augmentation.flip = true;
  } else if (const auto colour = share_of(word, kColour, kUsualColour, kLeastColour);
             colour && augmentation.colour == 0.0) {
    augmentation.colour = *colour;
  } else {
    return false;
  }
  return true;
}

constexpr double kNarrowest = 3.0 / 4.0, kWidest = 4.0 / 3.0;

PixelBox draw_resized_crop(double min_scale, std::int64_t h, std::int64_t w, std::uint64_t seed, std::int64_t epoch,
                           std::int64_t sample) {
  constexpr std::uint32_t kTries = 10, kBlocks = 16;
  for (std::uint32_t attempt = 0; attempt < kTries; ++attempt) {
    const PhiloxBlock words = random_block(seed, RandomPurpose::resize, static_cast<std::uint64_t>(sample),
                                           static_cast<std::uint32_t>(epoch) * kBlocks + attempt);
    const double area = static_cast<double>(h * w) * draw_between(words[0], min_scale, 1.0);
    const double ratio = std::exp(draw_between(words[1], std::log(kNarrowest), std::log(kWidest)));
    const std::int64_t box_w = std::lround(std::sqrt(area * ratio)), box_h = std::lround(std::sqrt(area / ratio));
    if (box_h < 1 || box_w < 1 || box_h > h || box_w > w) continue;
    return {draw_below(words[2], h - box_h + 1), draw_below(words[3], w - box_w + 1), box_h, box_w};
  }
  const double ratio = static_cast<double>(w) / static_cast<double>(h);
  std::int64_t box_h = h, box_w = w;
  if (ratio < kNarrowest) box_h = std::clamp<std::int64_t>(std::lround(static_cast<double>(w) / kNarrowest), 1, h);
  if (ratio > kWidest) box_w = std::clamp<std::int64_t>(std::lround(static_cast<double>(h) * kWidest), 1, w);
  return {(h - box_h) / 2, (w - box_w) / 2, box_h, box_w};
}

constexpr std::array<double, 3> kGreyWeights{0.299, 0.587, 0.114};

}  // namespace

Augmentation Augmentation::parse(const std::string& text) {
  Augmentation augmentation;
  if (text == "none" || text.empty()) return augmentation;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (!take_word(word, augmentation)) refuse(text, word);
  }
  return augmentation;
}

std::string Augmentation::str() const {
  std::vector<std::string> words;
  if (pad > 0) words.push_back(std::string(kCrop) + std::to_string(pad));
  if (resized_crop) {
    words.push_back(std::string(kResizedCrop) + (min_scale == kUsualScale ? "" : share_text(min_scale)));
  }
  if (flip) words.emplace_back("flip");
  if (colour > 0.0) words.push_back(std::string(kColour) + share_text(colour));
  return words.empty() ? "none" : join(words, ",");
}

void set_box(const PixelBox& box, SampleParams& params) {
  params.crop_y = static_cast<std::int32_t>(box.y);
  params.crop_x = static_cast<std::int32_t>(box.x);
  params.crop_h = static_cast<std::int32_t>(box.h);
  params.crop_w = static_cast<std::int32_t>(box.w);
}

SampleParams draw_params(const Augmentation& augmentation, std::int64_t h, std::int64_t w, std::uint64_t seed,
                         std::int64_t epoch, std::int64_t sample) {
  SampleParams params;
  const PhiloxBlock words =
      random_block(seed, RandomPurpose::augment, static_cast<std::uint64_t>(sample), static_cast<std::uint32_t>(epoch));
  // Each choice has a word of its own, so that switching one off leaves the others as they are.
  const std::int64_t places = 2 * augmentation.pad + 1;
  PixelBox box{draw_below(words[0], places) - augmentation.pad, draw_below(words[1], places) - augmentation.pad, h, w};
  if (augmentation.resized_crop) box = draw_resized_crop(augmentation.min_scale, h, w, seed, epoch, sample);
  set_box(box, params);
  if (augmentation.flip) params.flip = static_cast<std::int32_t>(words[2] >> 31);
  return params;
}

PixelBox centre_box(double fraction, bool square, std::int64_t h, std::int64_t w) {
  const auto part = [fraction](std::int64_t side) {
    return std::clamp<std::int64_t>(std::lround(fraction * static_cast<double>(side)), 1, side);
  };
  const std::int64_t shorter = std::min(h, w);
  const std::int64_t box_h = part(square ? shorter : h), box_w = part(square ? shorter : w);
  return {(h - box_h) / 2, (w - box_w) / 2, box_h, box_w};
}

ColourFactors draw_colour(const Augmentation& augmentation, std::uint64_t seed, std::int64_t epoch,
                          std::int64_t sample) {
  const double strength = augmentation.colour;
  const PhiloxBlock words =
      random_block(seed, RandomPurpose::colour, static_cast<std::uint64_t>(sample), static_cast<std::uint32_t>(epoch));
  const auto factor = [strength](std::uint32_t word) { return draw_between(word, 1.0 - strength, 1.0 + strength); };
  return {factor(words[0]), factor(words[1]), factor(words[2])};
}

void apply_colour(const ColourFactors& factors, double grey, SampleParams& params) {
  // Contrast moves towards the mean grey after brightness; saturation leaves greys, and so the constant, as they are.
  const double gain = factors.brightness * factors.contrast;
  const double offset = (1.0 - factors.contrast) * factors.brightness * grey;
  params.colour = 1;
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t column = 0; column < 3; ++column) {
      const double own = row == column ? factors.saturation : 0.0;
      params.colour_map[4 * row + column] =
          static_cast<float>(gain * (own + (1.0 - factors.saturation) * kGreyWeights[column]));
    }
    params.colour_map[4 * row + 3] = static_cast<float>(offset);
  }
}

double mean_grey(const std::uint8_t* image, std::int64_t h, std::int64_t w, std::int64_t row_bytes,
                 const PixelBox& box) {
  const std::int64_t top = std::clamp<std::int64_t>(box.y, 0, h), left = std::clamp<std::int64_t>(box.x, 0, w);
  const std::int64_t bottom = std::clamp<std::int64_t>(box.y + box.h, top, h);
  const std::int64_t right = std::clamp<std::int64_t>(box.x + box.w, left, w);
  std::array<std::uint64_t, 3> sums{};
  for (std::int64_t y = top; y < bottom; ++y) {
    const std::uint8_t* row = image + y * row_bytes;
    std::uint64_t red = 0, green = 0, blue = 0;
    for (std::int64_t x = left; x < right; ++x) {
      red += row[3 * x];
      green += row[3 * x + 1];
      blue += row[3 * x + 2];
    }
    sums[0] += red;
    sums[1] += green;
    sums[2] += blue;
  }
  double grey = 0.0;
  for (std::size_t k = 0; k < 3; ++k) grey += kGreyWeights[k] * static_cast<double>(sums[k]);
  return grey / static_cast<double>(box.h * box.w);
}

}  // namespace renai
