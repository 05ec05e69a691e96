#include "image_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>

#include "image_error.hpp"
#include "image_tree.hpp"
#include "jpeg_encoder.hpp"
#include "orientation.hpp"
#include "png_image.hpp"
#include "renai/base/descriptor.hpp"
#include "renai/base/error.hpp"
#include "renai/data/jpeg.hpp"
#include "resize.hpp"

namespace renai {
namespace {

constexpr std::int64_t kMostFileBytes = std::int64_t{128} << 20;
constexpr std::int64_t kMostPixels = 100'000'000;  ///< What decoding may need of these stays below a gigabyte.
constexpr std::int64_t kAnySide = std::int64_t{1} << 20;

/// Holds a place in the room.
class Place {
 public:
  Place(ByteRoom& room, std::int64_t bytes) : room_(room), bytes_(bytes) { room_.enter(bytes_); }
  ~Place() { room_.leave(bytes_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  ByteRoom& room_;
  const std::int64_t bytes_;
};

/// A file that was opened and can be read.
struct OpenFile {
  Descriptor descriptor;
  std::int64_t size_bytes = 0;
};

/// Errors: ImageError where the file itself is the reason, ResourceError where the host, its disk or network is,
/// DataError where there is not even a link that leads nowhere: the input changed, or its file system is gone.
[[noreturn]] void refuse_file(const std::filesystem::path& path, int error) {
  const std::string name = printable(path.string());
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
    throw DataError("reading " + name, "it was there when its folder was listed, and is gone",
                    "see to it that the input stays as it is, and pack again: what is done is kept");
  }
  const std::string why = std::generic_category().message(error);
  switch (error) {
    case EMFILE:
    case ENFILE: throw ResourceError("opening " + name, why, "raise the limit (ulimit -n), or lower --threads");
    case EACCES:
    case EPERM: throw ResourceError("reading " + name, why, "change its permissions, or remove the file");
    case ENOMEM: throw ResourceError("reading " + name, why, "lower --threads, or free some memory");
    case EIO:
    case ESTALE:
    case ETIMEDOUT:
    case EAGAIN:
      throw ResourceError("reading " + name, why,
                          "check the disk or the network file system and pack again: what is done is kept");
    default: throw ImageError(why);
  }
}

OpenFile open_file(const std::filesystem::path& path) {
  // Without O_NONBLOCK the opening of a pipe would wait for a writer for ever.
  OpenFile file{Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))};
  struct stat status {};
  if (!file.descriptor || ::fstat(file.descriptor.get(), &status) != 0) refuse_file(path, errno);
  if (!S_ISREG(status.st_mode)) throw ImageError("it is no regular file");
  if (status.st_size == 0) throw ImageError("it is empty");
  if (status.st_size > kMostFileBytes) throw ImageError("it has over 128 MiB");
  file.size_bytes = status.st_size;
  return file;
}

std::vector<std::byte> read_file(const OpenFile& file, const std::filesystem::path& path) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(file.size_bytes));
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t got = ::read(file.descriptor.get(), bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse_file(path, errno);
    if (got == 0) throw ImageError("it became shorter while it was read");
    at += static_cast<std::size_t>(got);
  }
  return bytes;
}

/// Whether libjpeg keeps all coefficients of a JPEG image until its end: it is progressive, or its channels come one
/// after the other.
bool comes_in_scans(std::span<const std::byte> bytes) {
  const auto byte = [bytes](std::size_t at) { return at < bytes.size() ? std::to_integer<unsigned>(bytes[at]) : 0; };
  unsigned channels = 0;
  for (std::size_t at = 2; at + 4 < bytes.size();) {
    if (byte(at) != 0xFF) {
      ++at;  // Bytes between segments; libjpeg skips them too.
      continue;
    }
    const unsigned marker = byte(at + 1);
    if (marker == 0xFF || marker == 0 || (marker >= 0xD0 && marker <= 0xD8) || marker == 1) {
      at += marker == 0xFF ? 1 : 2;
      continue;
    }
    if (marker == 0xDA) return byte(at + 4) < channels;  // Start of scan: how many channels it has.
    const bool frame = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    if (frame && marker % 4 == 2) return true;
    if (frame) channels = byte(at + 9);
    at += 2 + 256 * byte(at + 2) + byte(at + 3);
  }
  return true;
}

bool begins_with(std::span<const std::byte> bytes, std::string_view start, std::size_t at = 0) {
  return bytes.size() >= at + start.size() && std::memcmp(bytes.data() + at, start.data(), start.size()) == 0;
}

[[noreturn]] void refuse_kind(std::span<const std::byte> bytes) {
  std::string kind = "no image of a kind that is known";
  if (begins_with(bytes, "GIF8")) kind = "a GIF image";
  if (begins_with(bytes, "RIFF") && begins_with(bytes, "WEBP", 8)) kind = "a WebP image";
  if (begins_with(bytes, "BM")) kind = "a BMP image";
  if (begins_with(bytes, "II*") || begins_with(bytes, "MM")) kind = "a TIFF image";
  if (begins_with(bytes, "ftyp", 4)) kind = "a HEIF or AVIF image";
  throw ImageError("it is " + kind + "; JPEG and PNG are read");
}

void require_pixels(std::int64_t h, std::int64_t w) {
  if (h < 1 || w < 1) throw ImageError("it has no pixels");
  if (h <= kMostPixels && w <= kMostPixels && h * w <= kMostPixels) return;
  throw ImageError("it has " + std::to_string(h) + "x" + std::to_string(w) + " pixels; at most 100 million are read");
}

void measure_pixels(const RgbImage& image, StoredImage& stored) {
  const auto pixels = static_cast<std::uint64_t>(image.h * image.w);
  std::array<std::uint64_t, 3> sum{}, square_sum{};
  for (std::size_t at = 0; at < image.pixels.size(); at += 3) {
    for (std::size_t c = 0; c < 3; ++c) {
      const std::uint64_t value = image.pixels[at + c];
      sum[c] += value;
      square_sum[c] += value * value;
    }
  }
  for (std::size_t c = 0; c < 3; ++c) {
    stored.mean[c] = ((sum[c] << 16) + pixels / 2) / pixels;
    stored.square_mean[c] = ((square_sum[c] << 16) + pixels / 2) / pixels;
  }
  stored.measured = true;
}

}  // namespace

void ByteRoom::enter(std::int64_t bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return bytes_ == 0 || bytes_ + bytes <= most_bytes_; });
  bytes_ += bytes;
}

void ByteRoom::leave(std::int64_t bytes) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes_ -= bytes;
  }
  changed_.notify_all();
}

struct ImageFileReader::Impl {
  ImageGoal goal;
  ImageRooms* rooms;
  JpegDecoder decoder;

  Impl(const ImageGoal& wanted, ImageRooms& shared) : goal(wanted), rooms(&shared) {}

  /// No smaller than `least` on the shorter side, where the image is not smaller itself. The image is in the room for
  /// pixels until `use(image, picture)` has returned.
  template <typename Use>
  void decode_jpeg(std::span<const std::byte> bytes, std::int64_t least, Use&& use) {
    const ImageSize size = decoder.open(bytes);
    require_pixels(size.h, size.w);
    const PixelBox whole{0, 0, size.h, size.w};
    const DecodeGoal all{least, least, kAnySide, kAnySide};
    const DecodeScale scale = choose_scale(size, whole, all);
    const std::int64_t coefficient_bytes = comes_in_scans(bytes) ? 6 * size.h * size.w : 0;
    const Place place(rooms->pixels, coefficient_bytes + 6 * scale.region.h * scale.region.w);
    RgbImage image{scale.region.h, scale.region.w, {}};
    image.pixels.resize(static_cast<std::size_t>(3 * image.h * image.w));
    decoder.decode(whole, all, reinterpret_cast<std::byte*>(image.pixels.data()), 3 * image.w);
    const Turn turn = turn_of(decoder.orientation());
    use(image, Picture{size, scale.eighths, turn.mirrored_y, turn.mirrored_x});
  }

  StoredImage make(const std::filesystem::path& path, bool measure) {
    const OpenFile file = open_file(path);
    const Place place(rooms->files, file.size_bytes);
    StoredImage stored;
    stored.bytes = read_file(file, path);
    const bool png = begins_with(stored.bytes, "\x89PNG\r\n\x1a\n");
    if (!png && !begins_with(stored.bytes, "\xff\xd8\xff")) refuse_kind(stored.bytes);
    return goal.jpeg ? make_encoded(std::move(stored), png, measure) : make_pixels(std::move(stored), png);
  }

  StoredImage make_encoded(StoredImage stored, bool png, bool measure) {
    if (png) {
      const PngSize size = read_png_size(stored.bytes);
      require_pixels(size.h, size.w);
      const Place place(rooms->pixels, 7 * size.h * size.w);
      stored.bytes = encode_jpeg(decode_png(stored.bytes));
      stored.encoded_here = true;
    }
    decode_jpeg(stored.bytes, measure ? goal.size : 1, [&](const RgbImage& image, const Picture&) {
      if (measure) measure_pixels(image, stored);
    });
    return stored;
  }

  StoredImage make_pixels(StoredImage stored, bool png) {
    RgbImage image;
    if (png) {
      const PngSize size = read_png_size(stored.bytes);
      require_pixels(size.h, size.w);
      const Place place(rooms->pixels, 7 * size.h * size.w);
      image = resize_and_crop(decode_png(stored.bytes), goal.size);
    } else {
      decode_jpeg(stored.bytes, 2 * goal.size, [&](const RgbImage& decoded, const Picture& picture) {
        image = resize_and_crop(decoded, picture, goal.size);
      });
    }
    measure_pixels(image, stored);
    stored.bytes.resize(image.pixels.size());
    std::memcpy(stored.bytes.data(), image.pixels.data(), image.pixels.size());
    return stored;
  }
};

ImageFileReader::ImageFileReader(const ImageGoal& goal, ImageRooms& rooms)
    : impl_(std::make_unique<Impl>(goal, rooms)) {}
ImageFileReader::~ImageFileReader() = default;

StoredImage ImageFileReader::read(const std::filesystem::path& path, bool measure) {
  StoredImage refused;
  try {
    return impl_->make(path, measure);
  } catch (const ImageError& error) {
    refused.refusal = error.what();
  } catch (const JpegError& error) {
    refused.refusal = std::string("it is damaged: ") + error.what();
  }
  return refused;
}

}  // namespace renai
