#include <algorithm>
#include <charconv>

#include "draws.hpp"
#include "renai/base/error.hpp"
#include "renai/base/philox.hpp"
#include "renai/base/text.hpp"
#include "renai/data/loader.hpp"

namespace renai {
namespace {

constexpr std::string_view kCrop = "crop";
constexpr std::int64_t kWidestPad = 1024;

/// N of "cropN", or 0.
std::int64_t crop_pixels(std::string_view word) {
  if (!word.starts_with(kCrop)) return 0;
  word.remove_prefix(kCrop.size());
  std::int64_t pixels = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), pixels);
  return error == std::errc{} && end == word.data() + word.size() && pixels >= 1 && pixels <= kWidestPad ? pixels : 0;
}

/// "crop" and a number, of whatever size.
bool is_crop(std::string_view word) {
  return word.starts_with(kCrop) && word.find_first_not_of("-0123456789", kCrop.size()) == std::string_view::npos;
}

[[noreturn]] void refuse(const std::string& text, const std::string& word) {
  constexpr const char* kForms = "write none, flip, cropN or cropN,flip, such as crop4,flip";
  const std::string option = "--augment " + text;
  const bool alone = word == text;
  if (word == "none") throw UserError(option, "'none' goes with no other word", kForms);
  if (word.empty()) throw UserError(option, "a word between commas is missing", kForms);
  if (crop_pixels(word) > 0 || word == "flip")
    throw UserError(option, "'" + word + "' comes on top of another", kForms);
  if (is_crop(word)) {
    throw UserError(option, "the N of '" + word + "' does not lie between 1 and " + std::to_string(kWidestPad), kForms);
  }
  std::vector<std::string> known{"flip", "crop4"};
  if (alone) known.emplace_back("none");
  throw UserError(option, "'" + word + "' is not known", suggest_name(word, known));
}

}  // namespace

Augmentation Augmentation::parse(const std::string& text) {
  Augmentation augmentation;
  if (text == "none" || text.empty()) return augmentation;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    const std::int64_t pixels = crop_pixels(word);
    if (pixels > 0 && augmentation.pad == 0) {
      augmentation.pad = pixels;
    } else if (word == "flip" && !augmentation.flip) {
      augmentation.flip = true;
    } else {
      refuse(text, word);
    }
  }
  return augmentation;
}

std::string Augmentation::str() const {
  if (pad == 0) return flip ? "flip" : "none";
  return "crop" + std::to_string(pad) + (flip ? ",flip" : "");
}

SampleParams draw_params(const Augmentation& augmentation, std::int64_t h, std::int64_t w, std::uint64_t seed,
                         std::int64_t epoch, std::int64_t sample) {
  SampleParams params;
  params.crop_h = static_cast<std::int32_t>(h);
  params.crop_w = static_cast<std::int32_t>(w);
  const PhiloxBlock words =
      random_block(seed, RandomPurpose::augment, static_cast<std::uint64_t>(sample), static_cast<std::uint32_t>(epoch));
  // Each choice has a word of its own, so that switching one off leaves the others as they are.
  const std::int64_t places = 2 * augmentation.pad + 1;
  params.crop_y = static_cast<std::int32_t>(draw_below(words[0], places) - augmentation.pad);
  params.crop_x = static_cast<std::int32_t>(draw_below(words[1], places) - augmentation.pad);
  if (augmentation.flip) params.flip = static_cast<std::int32_t>(words[2] >> 31);
  return params;
}

}  // namespace renai
