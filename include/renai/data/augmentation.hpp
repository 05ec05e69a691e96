#pragma once
// Augmentation: which part of an image a sample shows, mirrored or not, in which colours.

#include <cstdint>
#include <string>

#include "renai/tensor/slot_layout.hpp"

namespace renai {

/// What training may do to each image.
struct Augmentation {
  std::int64_t pad = 0;       ///< Pixels of border on each side before a crop of the image's own size; 0: no such crop.
  bool resized_crop = false;  ///< A crop of min_scale to all of the area, its width 3/4 to 4/3 of its height.
  double min_scale = 0.08;
  bool flip = false;  ///< Mirrors left-right with even chances.
  /// s: brightness, contrast and saturation are scaled by a factor each, uniform in [1 - s, 1 + s]; 0: off.
  double colour = 0;

  /// "none" or a list of flip, cropN (N pixels), resized-crop or resized-cropS (S: least scale), colour or colourS (S:
  /// strength, 0.4 where none is given). Errors: UserError with the nearest known word.
  static Augmentation parse(const std::string& text);
  std::string str() const;
};

/// A part of an image.
struct PixelBox {
  std::int64_t y = 0, x = 0, h = 0, w = 0;
  bool operator==(const PixelBox&) const = default;
};

/// The sample shows this part of its image.
void set_box(const PixelBox& box, SampleParams& params);

/// Crop box in pixels of an image of h x w, and flip. Determinism: a pure function of its arguments.
/// Source: the resized crop is that of Szegedy et al., "Going Deeper with Convolutions", 2015, as in torchvision's
/// RandomResizedCrop: ten tries, then the largest box of an allowed shape in the middle.
SampleParams draw_params(const Augmentation& augmentation, std::int64_t h, std::int64_t w, std::uint64_t seed,
                         std::int64_t epoch, std::int64_t sample);

/// What validation shows of an image of h x w: the middle `fraction` of each side, or, `square`, a square of that
/// fraction of the shorter side. Fraction 0.875 and square: as resizing to 256 and cropping 224. At least one pixel.
PixelBox centre_box(double fraction, bool square, std::int64_t h, std::int64_t w);

/// Factors of one sample's colour jitter.
struct ColourFactors {
  double brightness = 1, contrast = 1, saturation = 1;
};
/// Determinism: a pure function of its arguments.
ColourFactors draw_colour(const Augmentation& augmentation, std::uint64_t seed, std::int64_t epoch,
                          std::int64_t sample);
/// Sets the colour map: brightness times the pixel, contrast around the mean grey, saturation around the pixel's own
/// grey. `grey`: mean of 0.299 red + 0.587 green + 0.114 blue over the crop. The three commute while nothing is
/// clamped, and here only their product is; torchvision's ColorJitter clamps and rounds after each, in a random order.
void apply_colour(const ColourFactors& factors, double grey, SampleParams& params);

/// Mean grey of a box of an image of three channels with rows of `row_bytes`; what lies outside of the image's h x w
/// counts as black. Determinism: sums are exact.
double mean_grey(const std::uint8_t* image, std::int64_t h, std::int64_t w, std::int64_t row_bytes,
                 const PixelBox& box);

}  // namespace renai
