// Flipped, overwritten, cut and repeated bytes in PNG files of every kind that `pack folder` reads, with and without
// right checksums: an image or a named reason, never a crash, within bounded time and memory.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

// After <cstring>, as jmp_buf needs it.
#include <png.h>

#include "../../src/data/image_error.hpp"
#include "../../src/data/image_file.hpp"
#include "../../src/data/png_image.hpp"
#include "data_files.hpp"
#include "renai/base/philox.hpp"

namespace renai {
namespace {

using testing::Folder;
using testing::spill;

constexpr std::size_t kSignature = 8, kAround = 12;  ///< Bytes of a chunk besides its data: length, name, checksum.

/// Random words of one round.
class Words {
 public:
  explicit Words(std::uint64_t round) : round_(round) {}
  std::uint64_t below(std::uint64_t count) {
    const PhiloxBlock block = random_block(23, RandomPurpose::test, round_, next_++);
    return (std::uint64_t{block[0]} << 32 | block[1]) % count;
  }

 private:
  std::uint64_t round_;
  std::uint32_t next_ = 0;
};

struct Kind {
  int colour, depth;
};

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  for (const int depth : {1, 2, 4, 8, 16}) all.push_back({PNG_COLOR_TYPE_GRAY, depth});
  for (const int depth : {1, 2, 4, 8}) all.push_back({PNG_COLOR_TYPE_PALETTE, depth});
  for (const int colour : {PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB_ALPHA}) {
    for (const int depth : {8, 16}) all.push_back({colour, depth});
  }
  return all;
}

void append(png_structp png, png_bytep data, std::size_t size) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<const char*>(data), size);
}

/// A small image of a kind, with what ancillary chunks such files have.
std::string make_png(const Kind& kind, bool interlaced, png_uint_32 h, png_uint_32 w) {
  std::string bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &bytes, append, nullptr);
  png_set_IHDR(png, info, w, h, kind.depth, kind.colour, interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette;
  for (int i = 0; i < (1 << std::min(kind.depth, 8)); ++i) {
    palette.push_back({static_cast<png_byte>(i), static_cast<png_byte>(255 - i), static_cast<png_byte>(3 * i)});
  }
  std::vector<png_byte> alpha{0, 128};
  if (kind.colour == PNG_COLOR_TYPE_PALETTE) {
    png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
    png_set_tRNS(png, info, alpha.data(), 2, nullptr);
  }
  png_set_gAMA(png, info, 0.45455);
  std::string key = "Comment", text(200, 'x');
  png_text comment{};
  comment.compression = PNG_TEXT_COMPRESSION_zTXt;
  comment.key = key.data();
  comment.text = text.data();
  comment.text_length = text.size();
  png_set_text(png, info, &comment, 1);
  std::vector<png_byte> exif{'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0};
  png_set_eXIf_1(png, info, static_cast<png_uint_32>(exif.size()), exif.data());
  png_write_info(png, info);
  const std::size_t row_bytes = png_get_rowbytes(png, info);
  std::vector<png_byte> pixels(row_bytes * h);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<png_byte>(i * i / 3 + 7 * i);
  std::vector<png_bytep> rows;
  for (png_uint_32 y = 0; y < h; ++y) rows.push_back(pixels.data() + row_bytes * y);
  png_write_image(png, rows.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

std::uint32_t number_at(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// Makes the checksum of every whole chunk right, so that what follows it is reached.
void mend_checksums(std::string& bytes) {
  for (std::size_t at = kSignature; at + kAround <= bytes.size();) {
    const std::size_t size = number_at(bytes, at);
    if (size > bytes.size() - at - kAround) return;
    const auto sum = static_cast<std::uint32_t>(
        ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data() + at + 4), static_cast<uInt>(size + 4)));
    for (int i = 0; i < 4; ++i) {
      bytes[at + 8 + size + static_cast<std::size_t>(i)] = static_cast<char>(sum >> (24 - 8 * i));
    }
    at += kAround + size;
  }
}

std::string mutate(std::string bytes, Words& words) {
  const std::uint64_t kind = words.below(10);
  if (kind == 0) return bytes.substr(0, words.below(bytes.size()));
  if (kind == 1) {  // A part twice, as of a file copied badly.
    const std::uint64_t from = words.below(bytes.size()), size = 1 + words.below(40);
    return bytes.insert(words.below(bytes.size()), bytes.substr(from, size));
  }
  const std::uint64_t count = kind < 6 ? 1 : 1 + words.below(8);
  // Half of all rounds hit the header, whose numbers decide about memory.
  const std::uint64_t end = words.below(2) == 0 ? 33 : bytes.size();
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = kSignature + words.below(end - kSignature);
    const bool whole = words.below(2) == 0;
    const auto value = whole ? words.below(256) : static_cast<unsigned char>(bytes[at]) ^ (1u << words.below(8));
    bytes[at] = static_cast<char>(value);
  }
  if (words.below(4) != 0) mend_checksums(bytes);
  return bytes;
}

/// Of the process so far; 0 under the address sanitizer, which keeps what was freed.
std::int64_t peak_bytes() {
#ifdef __SANITIZE_ADDRESS__
  return 0;
#endif
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(FuzzPngFiles, AnImageOrAReason) {
  constexpr int kRounds = 120;
  const Folder folder;
  const auto path = folder / "image.png";
  ImageRooms rooms;
  ImageFileReader as_jpeg({true, 16}, rooms), as_pixels({false, 16}, rooms);
  const std::int64_t before = peak_bytes();
  int read = 0, refused = 0;
  std::uint64_t round = 0;
  double slowest = 0;
  for (const Kind& kind : kinds()) {
    for (const bool interlaced : {false, true}) {
      const std::string whole = make_png(kind, interlaced, 13, 11);
      spill(path, whole);
      const StoredImage right = as_pixels.read(path, true);
      ASSERT_EQ(right.refusal, "") << kind.colour << " " << kind.depth;
      ASSERT_EQ(right.bytes.size(), 3u * 16 * 16);
      for (int i = 0; i < kRounds; ++i, ++round) {
        Words words(round);
        spill(path, mutate(whole, words));
        const double start = thread_seconds();
        const StoredImage found = (i % 2 == 0 ? as_jpeg : as_pixels).read(path, true);
        slowest = std::max(slowest, thread_seconds() - start);
        ASSERT_TRUE(found.refusal.empty() == found.measured);
        if (found.refusal.empty()) {
          ASSERT_TRUE(!found.bytes.empty() && (i % 2 == 0 || found.bytes.size() == right.bytes.size()));
          ++read;
        } else {
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(read, 300);
  EXPECT_GT(refused, 1000);
  EXPECT_LT(slowest, 2.0);
  // A header may promise any number of pixels; memory is taken for what the file can hold.
  EXPECT_LT(peak_bytes() - before, std::int64_t{96} << 20);
}

std::string chunk(const std::string& name, const std::string& data) {
  std::string bytes(4, '\0');
  for (int i = 0; i < 4; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<char>(data.size() >> (24 - 8 * i));
  return bytes + name + data + std::string(4, '\0');
}

/// So many bytes of one kind, compressed, without ever having them in memory.
std::string deflated(std::size_t size) {
  std::string block(std::size_t{1} << 20, 'x'), packed(size / 900 + 1000, '\0');
  z_stream stream{};
  ::deflateInit(&stream, Z_BEST_COMPRESSION);
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  for (std::size_t done = 0; done < size; done += block.size()) {
    stream.next_in = reinterpret_cast<Bytef*>(block.data());
    stream.avail_in = static_cast<uInt>(block.size());
    ::deflate(&stream, done + block.size() < size ? Z_NO_FLUSH : Z_FINISH);
  }
  packed.resize(stream.total_out);
  ::deflateEnd(&stream);
  return packed;
}

/// The same file with a chunk put in after its header.
std::string with_chunk(const std::string& file, const std::string& more) {
  std::string bytes = file.substr(0, 33) + more + file.substr(33);
  mend_checksums(bytes);
  return bytes;
}

TEST(FuzzPngFiles, MemoryIsBoundedByTheFile) {
  const std::string whole = make_png({PNG_COLOR_TYPE_RGB, 8}, false, 13, 11);
  const std::string bomb = deflated(std::size_t{200} << 20);
  const std::int64_t before = peak_bytes();
  // Text and profiles that inflate to 200 MB are left out or refused; the image may well be whole.
  for (const std::string& more :
       {chunk("zTXt", std::string("Comment\0\0", 9) + bomb), chunk("iCCP", std::string("profile\0\0", 9) + bomb)}) {
    const std::string bytes = with_chunk(whole, more);
    try {
      EXPECT_EQ(decode_png(std::as_bytes(std::span(bytes))).pixels.size(), 3u * 13 * 11);
    } catch (const ImageError&) {
    }
  }
  // 9000 x 9000 pixels that a file of some hundred bytes cannot hold, and of which all are missing.
  std::string promise = whole;
  for (const std::size_t at : {18u, 22u}) {
    promise[at] = 0x23;
    promise[at + 1] = 0x28;
  }
  mend_checksums(promise);
  EXPECT_THROW(decode_png(std::as_bytes(std::span(promise))), ImageError);
  EXPECT_LT(peak_bytes() - before, std::int64_t{64} << 20);
}

}  // namespace
}  // namespace renai
