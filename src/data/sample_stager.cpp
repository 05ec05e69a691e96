#include "sample_stager.hpp"

#include <algorithm>

#include "renai/base/error.hpp"

namespace renai {
namespace {

/// What validation shows of an image where nothing else is said: as resizing to 256 and cropping 224.
constexpr double kUsualValCrop = 0.875;

PixelBox box_of(const SampleParams& params) { return {params.crop_y, params.crop_x, params.crop_h, params.crop_w}; }

}  // namespace

void verify_augmentation(const Augmentation& augmentation, const Manifest& manifest) {
  const std::string option = "--augment " + augmentation.str();
  if (augmentation.pad > 0 && manifest.encoding == "jpeg") {
    throw UserError(option,
                    "the images of data set " + manifest.name + " differ in size, so a border of some pixels " +
                        "means something else for each",
                    "use resized-crop");
  }
  if (augmentation.colour > 0.0 && manifest.channels != 3) {
    throw UserError(option,
                    "the images of data set " + manifest.name + " have " + std::to_string(manifest.channels) +
                        (manifest.channels == 1 ? " channel; colours need 3" : " channels; colours need 3"),
                    "leave 'colour' away");
  }
}

void SampleStager::stage(const ShardJob& job, std::size_t row, std::int64_t sample, SampleParams& params,
                         std::span<std::byte> image) {
  if (job.dataset->encoded()) {
    stage_encoded(job, row, sample, params, image);
  } else {
    params = draw(job, sample, config_->layout.h, config_->layout.w);
    reader_.get(row);  // Puts the pixels in their place.
  }
  const SlotLayout& layout = config_->layout;
  if (job.control.phase != 0 || config_->augmentation.colour <= 0.0) return;
  const double grey = mean_grey(reinterpret_cast<const std::uint8_t*>(image.data()), layout.h, layout.w,
                                layout.w * layout.c, box_of(params));
  apply_colour(draw_colour(config_->augmentation, config_->seed, job.epoch, sample), grey, params);
}

/// Crop and flip in an image of h x w.
SampleParams SampleStager::draw(const ShardJob& job, std::int64_t sample, std::int64_t h, std::int64_t w) const {
  if (job.control.phase == 0) return draw_params(config_->augmentation, h, w, config_->seed, job.epoch, sample);
  const bool square = job.dataset->encoded();
  const double fraction = config_->val_crop > 0.0 ? config_->val_crop : square ? kUsualValCrop : 1.0;
  SampleParams params;
  set_box(centre_box(fraction, square, h, w), params);
  return params;
}

void SampleStager::stage_encoded(const ShardJob& job, std::size_t row, std::int64_t sample, SampleParams& params,
                                 std::span<std::byte> image) {
  const SlotLayout& layout = config_->layout;
  const std::span<const std::byte> bytes = reader_.get(row);
  try {
    const ImageSize size = decoder_.open(bytes);
    params = draw(job, sample, size.h, size.w);
    // By the network's input, never by the room: that is larger where another resolution of the run needs more.
    const DecodeGoal goal{job.h, job.w, std::min(staged_extent(job.h), layout.h),
                          std::min(staged_extent(job.w), layout.w)};
    const ImageSize region = decoder_.decode(box_of(params), goal, image.data(), layout.w * layout.c);
    set_box({0, 0, region.h, region.w}, params);
  } catch (const JpegError& error) {
    job.dataset->fail_sample(sample, std::string("its JPEG image cannot be decoded: ") + error.what());
  }
}

}  // namespace renai
