// Any HDF5 file with an array of images and one of labels.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>

#include "pack_journal.hpp"
#include "packing.hpp"
#include "pixel_values.hpp"
#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"
#include "renai/base/text.hpp"
#include "renai/io/hdf5.hpp"
#include "shard_file.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

/// One array of images with its labels, opened.
struct Arrays {
  std::shared_ptr<const H5File> file;
  std::string path, images, labels;
  PixelLayout layout;
  DType dtype = DType::u8;  ///< As which pixels are read: u8, i64 or f32.
  double scale = 1;         ///< Of f32.
  std::int64_t samples = 0;
  std::vector<std::int32_t> label_of;
  std::int64_t classes = 0;  ///< That the labels need.
};

std::string name_of(const Arrays& arrays, const std::string& dataset) {
  return "dataset '" + dataset + "' of " + arrays.path;
}

H5DatasetInfo require_numbers(const Arrays& arrays, const std::string& dataset) {
  if (!arrays.file->exists(dataset)) {
    if (const std::string target = arrays.file->broken_link(dataset); !target.empty()) {
      throw DataError(name_of(arrays, dataset), "it is a link to " + target + ", which is not there",
                      "put back what it leads to, or name another dataset");
    }
    const std::vector<std::string> names = arrays.file->children("/");
    throw UserError(name_of(arrays, dataset), "there is no such dataset",
                    names.empty() ? "name another file" : suggest_name(dataset, names));
  }
  if (arrays.file->is_group(dataset)) {
    const std::vector<std::string> names = arrays.file->children(dataset);
    throw UserError(
        name_of(arrays, dataset), "it is a group, not a dataset",
        names.empty() ? "name another dataset" : "name one in it, such as " + dataset + "/" + names.front());
  }
  H5DatasetInfo info = arrays.file->info(dataset);
  if (!info.convertible || info.extents.empty()) {
    throw UserError(name_of(arrays, dataset), "it is no array of numbers", "name another dataset");
  }
  double bytes = static_cast<double>(dtype_bytes(info.dtype));
  for (const std::int64_t extent : info.extents) bytes *= static_cast<double>(extent);
  if (bytes > static_cast<double>(arrays.file->most_bytes(dataset))) {
    throw DataError(name_of(arrays, dataset), "its extents ask for far more than the file stores of it",
                    "the file is damaged, or was never written to its end");
  }
  return info;
}

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

[[noreturn]] void fail_sample(const Arrays& arrays, const std::string& dataset, std::int64_t index,
                              const std::string& why) {
  throw DataError("sample " + std::to_string(index) + " of " + name_of(arrays, dataset), why,
                  "correct the file, or choose other options");
}

constexpr std::int64_t kMostClasses = 1 << 20;  ///< Larger numbers are no labels: each class up to them has a name.

/// The label in a row of values: itself, or the place of the one that is 1.
std::int64_t label_in(const Arrays& arrays, std::int64_t index, std::span<const double> row) {
  if (row.size() == 1) {
    const bool whole = row[0] == std::floor(row[0]);
    if (whole && row[0] >= 0 && row[0] < static_cast<double>(kMostClasses)) return static_cast<std::int64_t>(row[0]);
    std::ostringstream value;
    value << row[0];
    fail_sample(arrays, arrays.labels, index,
                "its label is " + value.str() + "; 0, 1, 2 ... " + std::to_string(kMostClasses - 1) + " are expected");
  }
  std::int64_t label = -1;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] == 0) continue;
    if (row[i] != 1 || label >= 0) fail_sample(arrays, arrays.labels, index, "its row is not one 1 among zeros");
    label = static_cast<std::int64_t>(i);
  }
  if (label < 0) fail_sample(arrays, arrays.labels, index, "its row is not one 1 among zeros");
  return label;
}

void read_labels(Arrays& arrays) {
  const H5DatasetInfo info = require_numbers(arrays, arrays.labels);
  const std::int64_t width = info.extents.size() > 1 ? info.extents[1] : 1;
  if (info.extents[0] != arrays.samples || info.extents.size() > 2 || width < 1 || width > kMostClasses) {
    throw UserError(name_of(arrays, arrays.labels),
                    "its " + std::to_string(info.extents[0]) + " rows are no labels for " +
                        std::to_string(arrays.samples) + " images",
                    "name the labels of these images: one number a row, or one-hot rows");
  }
  const std::int64_t rows = rows_per_block(8 * width);
  std::vector<double> values;
  for (std::int64_t first = 0; first < arrays.samples; first += rows) {
    const std::int64_t count = std::min(rows, arrays.samples - first);
    values.resize(static_cast<std::size_t>(count * width));
    arrays.file->read(arrays.labels, DType::f64, first, count, std::as_writable_bytes(std::span(values)));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::span<const double> row =
          std::span(values).subspan(static_cast<std::size_t>(i * width), static_cast<std::size_t>(width));
      const std::int64_t label = label_in(arrays, first + i, row);
      arrays.label_of.push_back(static_cast<std::int32_t>(label));
      arrays.classes = std::max({arrays.classes, label + 1, width > 1 ? width : 0});
    }
  }
}

/// What is seen of an array's values, and its first sample with one that is no number.
struct SeenValues {
  ValueRange range;
  std::int64_t not_numbers = std::numeric_limits<std::int64_t>::max();
};

/// Looks at one rank's share of the values.
SeenValues look_at_share(const Arrays& arrays, const PackOptions& options) {
  SeenValues seen;
  const auto size = static_cast<std::size_t>(arrays.layout.values());
  const std::int64_t rows = rows_per_block(4 * arrays.layout.values());
  std::vector<float> values;
  for (std::int64_t first = rows * options.rank; first < arrays.samples; first += rows * options.world_size) {
    const std::int64_t count = std::min(rows, arrays.samples - first);
    values.resize(static_cast<std::size_t>(count) * size);
    arrays.file->read(arrays.images, DType::f32, first, count, std::as_writable_bytes(std::span(values)));
    for (std::int64_t i = 0; i < count; ++i) {
      ValueRange sample;
      sample.add(std::span(values).subspan(static_cast<std::size_t>(i) * size, size));
      if (!sample.finite) seen.not_numbers = std::min(seen.not_numbers, first + i);
      seen.range.add(sample);
    }
  }
  return seen;
}

/// The same on every rank. Errors: DataError naming the first sample with a value that is no number.
ValueRange look_at_values(const Arrays& arrays, const PackOptions& options) {
  const SeenValues own = look_at_share(arrays, options);
  std::ostringstream text;
  text.precision(17);
  text << own.range.least << ' ' << own.range.most << ' ' << own.range.seen << ' ' << own.range.whole << ' '
       << own.not_numbers;
  SeenValues all;
  for (const std::string& line : gather_texts(options, text.str())) {
    std::istringstream in(line);
    SeenValues part;
    in >> part.range.least >> part.range.most >> part.range.seen >> part.range.whole >> part.not_numbers;
    all.range.add(part.range);
    all.not_numbers = std::min(all.not_numbers, part.not_numbers);
  }
  if (all.not_numbers < arrays.samples) {
    fail_sample(arrays, arrays.images, all.not_numbers, "it has a value that is no number (NaN or infinite)");
  }
  return all.range;
}

/// One scale for all floating-point arrays: splits that were scaled by themselves could differ.
void set_scales(std::span<Arrays* const> splits, const std::string& request, const PackOptions& options) {
  std::vector<NamedRange> seen;
  std::vector<Arrays*> floats;
  for (Arrays* arrays : splits) {
    if (arrays->dtype != DType::f32) continue;
    floats.push_back(arrays);
    if (request == "auto") seen.push_back({name_of(*arrays, arrays->images), look_at_values(*arrays, options)});
  }
  if (floats.empty()) return;
  const double scale = request == "unit" ? 255 : request == "byte" ? 1 : find_scale(seen);
  for (Arrays* arrays : floats) {
    arrays->scale = scale;
    if (!options.note || options.rank != 0 || request != "auto") continue;
    options.note("the values of " + name_of(*arrays, arrays->images) + " are taken to be " +
                 (scale == 255 ? "0 to 1" : "0 to 255"));
  }
}

Arrays open_arrays(const fs::path& path, const std::string& images, const std::string& labels,
                   const Hdf5Options& hdf5) {
  Arrays arrays;
  arrays.path = path.string();
  require_named_file("input " + arrays.path, path, "name an HDF5 file");
  arrays.file = std::make_shared<const H5File>(H5File::open(path));
  arrays.images = images;
  arrays.labels = labels;
  const H5DatasetInfo info = require_numbers(arrays, images);
  arrays.samples = info.extents[0];
  LayoutRequest request{hdf5.layout, hdf5.height, hdf5.width, hdf5.channels};
  arrays.layout = find_layout(name_of(arrays, images), info.extents, request);
  arrays.dtype = is_float(info.dtype) ? DType::f32 : info.dtype == DType::u8 ? DType::u8 : DType::i64;
  if (arrays.dtype != DType::f32 && hdf5.scale == "unit") {
    throw UserError("--scale unit", name_of(arrays, images) + " holds integers", "leave the option out");
  }
  read_labels(arrays);
  constexpr std::int64_t kMostKept = std::int64_t{256} << 20;
  arrays.file->keep_chunks(images, kMostKept);
  return arrays;
}

/// Pixels of one number type, row after row.
template <typename Value>
void read_pixels(const Arrays& arrays, std::int64_t first, std::int64_t count, std::span<std::byte> images) {
  const std::int64_t size = arrays.layout.values();
  std::vector<Value> values(images.size()), row(static_cast<std::size_t>(size));
  arrays.file->read(arrays.images, arrays.dtype, first, count, std::as_writable_bytes(std::span(values)));
  for (std::int64_t i = 0; i < count; ++i) {
    reorder(arrays.layout, values.data() + i * size, row.data());
    for (std::int64_t at = 0; at < size; ++at) {
      const double value = std::round(static_cast<double>(row[static_cast<std::size_t>(at)]) * arrays.scale);
      if (!(value >= 0 && value <= 255)) {
        std::ostringstream stored;
        stored << row[static_cast<std::size_t>(at)];
        fail_sample(
            arrays, arrays.images, first + i,
            "it has a value of " + stored.str() + "; 0 to " + (arrays.scale == 255 ? "1" : "255") + " is expected");
      }
      images[static_cast<std::size_t>(i * size + at)] = static_cast<std::byte>(value);
    }
  }
}

void read_samples(const Arrays& arrays, std::int64_t first, std::span<std::int32_t> labels,
                  std::span<std::byte> images) {
  const auto count = static_cast<std::int64_t>(labels.size());
  std::copy_n(arrays.label_of.begin() + first, count, labels.begin());
  if (images.empty()) return;
  if (arrays.dtype == DType::f32) return read_pixels<float>(arrays, first, count, images);
  if (arrays.dtype == DType::i64) return read_pixels<std::int64_t>(arrays, first, count, images);
  if (arrays.layout.order == PixelOrder::chw) return read_pixels<std::uint8_t>(arrays, first, count, images);
  arrays.file->read(arrays.images, DType::u8, first, count, images);
}

SplitSource make_split(const std::string& name, Arrays arrays) {
  SplitSource split{name, arrays.samples, nullptr};
  split.read = [shared = std::make_shared<const Arrays>(std::move(arrays))](
                   std::int64_t first, std::span<std::int32_t> labels, std::span<std::byte> images) {
    read_samples(*shared, first, labels, images);
  };
  return split;
}

std::string settings_of(const fs::path& input, const Hdf5Options& hdf5) {
  std::string text = setting("kind", "hdf5") + setting("input", input.string()) + setting("images", hdf5.images) +
                     setting("labels", hdf5.labels) + setting("val-file", hdf5.val_file.string()) +
                     setting("val-images", hdf5.val_images) + setting("val-labels", hdf5.val_labels);
  return text + setting("layout", hdf5.layout) + setting("scale", hdf5.scale) +
         setting("height width channels",
                 std::to_string(hdf5.height) + " " + std::to_string(hdf5.width) + " " + std::to_string(hdf5.channels));
}

}  // namespace

Manifest pack_hdf5(const fs::path& input, const Hdf5Options& hdf5, const PackOptions& options) {
  Arrays train = open_arrays(input, hdf5.images, hdf5.labels, hdf5);
  PackSource source;
  source.height = train.layout.height;
  source.width = train.layout.width;
  source.channels = train.layout.channels;
  source.settings = settings_of(input, hdf5);
  std::int64_t classes = train.classes;
  std::optional<Arrays> val;
  const bool named = !hdf5.val_images.empty() || !hdf5.val_labels.empty();
  if (named || !hdf5.val_file.empty()) {
    val = open_arrays(hdf5.val_file.empty() ? input : hdf5.val_file,
                      hdf5.val_images.empty() ? hdf5.images : hdf5.val_images,
                      hdf5.val_labels.empty() ? hdf5.labels : hdf5.val_labels, hdf5);
    if (val->layout.height != source.height || val->layout.width != source.width ||
        val->layout.channels != source.channels) {
      throw DataError(name_of(*val, val->images), "its images have another size than the training images",
                      "name arrays of images of one size");
    }
    classes = std::max(classes, val->classes);
  }
  std::vector<Arrays*> splits{&train};
  if (val) splits.push_back(&*val);
  set_scales(splits, hdf5.scale, options);
  source.splits.push_back(make_split("train", std::move(train)));
  if (val) source.splits.push_back(make_split("val", std::move(*val)));
  source.classes = class_names(classes, options.classes);
  return write_dataset(std::move(source), options);
}

}  // namespace renai
