// H5File: values there and back, facts about datasets, and clear errors.
#include "renai/io/hdf5.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <thread>

#include "data_files.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::Folder;
using ::testing::HasSubstr;
using testing::message_of;
using testing::slurp;
using testing::spill;

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}
template <typename T>
std::vector<T> read_rows(const H5File& file, const std::string& name, DType dtype, std::int64_t first,
                         std::int64_t count, std::size_t row_elems = 1) {
  std::vector<T> values(static_cast<std::size_t>(count) * row_elems);
  file.read(name, dtype, first, count, std::as_writable_bytes(std::span(values)));
  return values;
}

fs::path write_sample(const Folder& folder) {
  const fs::path path = folder / "a.h5";
  H5File file = H5File::create(path);
  const std::array<std::int64_t, 2> extents{3, 2};
  file.write_all("m", DType::i32, extents, bytes_of(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}));
  file.create_group("g");
  const std::array<std::int64_t, 1> four{4};
  file.write_all("g/f", DType::f32, four, bytes_of(std::vector<float>{0.5f, -1.0f, 2.0f, 1e20f}));
  file.write_all("s", DType::f64, {}, bytes_of(std::vector<double>{2.5}));
  file.set_attribute("/", "text", std::string("déjà vu"));
  file.set_attribute("g", "number", std::int64_t{-7});
  file.set_attribute("/", "empty", std::string());
  file.close();
  return path;
}

TEST(Hdf5, ValuesComeBack) {
  const Folder folder;
  const H5File file = H5File::open(write_sample(folder));
  EXPECT_THAT(read_rows<std::int32_t>(file, "m", DType::i32, 1, 2, 2), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(read_rows<float>(file, "m", DType::f32, 0, 1, 2), ElementsAre(1.0f, 2.0f));
  EXPECT_THAT(read_rows<float>(file, "g/f", DType::f32, 0, 4), ElementsAre(0.5f, -1.0f, 2.0f, 1e20f));
  EXPECT_THAT(read_rows<double>(file, "s", DType::f64, 0, 1), ElementsAre(2.5));
  EXPECT_EQ(file.string_attribute("/", "text"), "déjà vu");
  EXPECT_EQ(file.string_attribute("", "empty"), "");
  EXPECT_EQ(file.int_attribute("g", "number"), -7);
  EXPECT_EQ(file.int_attribute("g", "none"), std::nullopt);
  EXPECT_EQ(file.string_attribute("none", "text"), std::nullopt);
  EXPECT_THAT(file.children("/"), ElementsAre("g", "m", "s"));
  EXPECT_TRUE(file.exists("g/f") && file.exists("/") && file.exists("g"));
  EXPECT_FALSE(file.exists("g/x") || file.exists("x/y") || file.exists("m/x"));
}

TEST(Hdf5, RawBytesLieWhereInfoSays) {
  const Folder folder;
  const fs::path path = write_sample(folder);
  const H5DatasetInfo info = H5File::open(path).info("m");
  EXPECT_THAT(info.extents, ElementsAre(3, 2));
  EXPECT_EQ(info.dtype, DType::i32);
  ASSERT_TRUE(info.contiguous && info.convertible);
  const std::vector<std::int32_t> expected{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(slurp(path).substr(static_cast<std::size_t>(info.file_offset), 24),
            std::string(reinterpret_cast<const char*>(expected.data()), 24));
}

TEST(Hdf5, EveryElementTypeComesBack) {
  const Folder folder;
  const std::array<std::int64_t, 1> two{2};
  const std::vector<std::uint64_t> raw{0x3c00'0123'4567'89ab, 0x1122'3344'5566'7788};
  const std::vector<DType> types{DType::f32, DType::f16, DType::bf16, DType::f64,
                                 DType::i32, DType::i64, DType::u8,   DType::u64};
  {
    H5File file = H5File::create(folder / "a.h5");
    for (const DType type : types) {
      file.write_all(std::string(dtype_name(type)), type, two,
                     bytes_of(raw).first(static_cast<std::size_t>(2 * dtype_bytes(type))));
    }
    file.close();
  }
  const H5File file = H5File::open(folder / "a.h5");
  for (const DType type : types) {
    const std::string name(dtype_name(type));
    EXPECT_EQ(file.info(name).dtype, type) << name;
    EXPECT_TRUE(file.info(name).contiguous) << name;
    std::vector<std::byte> bytes(static_cast<std::size_t>(2 * dtype_bytes(type)));
    file.read(name, type, 0, 2, bytes);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), bytes_of(raw).begin())) << name;
  }
}

TEST(Hdf5, EqualContentsGiveEqualFiles) {
  const Folder a, b;
  EXPECT_EQ(slurp(write_sample(a)), slurp(write_sample(b)));
}

TEST(Hdf5, SmallFloatsConvert) {
  const Folder folder;
  const std::array<std::int64_t, 1> two{2};
  {
    H5File file = H5File::create(folder / "a.h5");
    file.write_all("h", DType::f16, two, bytes_of(std::vector<std::uint16_t>{0x3c00, 0xc100}));
    file.write_all("b", DType::bf16, two, bytes_of(std::vector<std::uint16_t>{0x3f80, 0xc020}));
    file.close();
  }
  const H5File file = H5File::open(folder / "a.h5");
  EXPECT_THAT(read_rows<float>(file, "h", DType::f32, 0, 2), ElementsAre(1.0f, -2.5f));
  EXPECT_THAT(read_rows<float>(file, "b", DType::f32, 0, 2), ElementsAre(1.0f, -2.5f));
}

TEST(Hdf5, ModifyAddsToAFile) {
  const Folder folder;
  const fs::path path = write_sample(folder);
  {
    H5File file = H5File::modify(path);
    const std::array<std::int64_t, 1> one{1};
    file.write_all("new", DType::u64, one, bytes_of(std::vector<std::uint64_t>{9}));
    file.set_attribute("/", "text", std::string("changed"));
    file.close();
  }
  const H5File file = H5File::open(path);
  EXPECT_THAT(read_rows<std::uint64_t>(file, "new", DType::u64, 0, 1), ElementsAre(9u));
  EXPECT_EQ(file.string_attribute("/", "text"), "changed");
  EXPECT_THAT(read_rows<std::int32_t>(file, "m", DType::i32, 0, 1, 2), ElementsAre(1, 2));
}

TEST(Hdf5, ErrorsNameFileAndReason) {
  const Folder folder;
  const fs::path path = write_sample(folder);
  const auto opening = [](const fs::path& file) {
    return message_of<DataError>([&] { static_cast<void>(H5File::open(file)); });
  };
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(opening(folder / "pipe"), AllOf(HasSubstr("pipe"), HasSubstr("no regular file")));
  EXPECT_THAT(opening(folder / "none.h5"), AllOf(HasSubstr("none.h5"), HasSubstr("missing")));
  EXPECT_THAT(opening(folder.path()), HasSubstr("folder"));
  spill(folder / "text.h5", "no HDF5 here");
  EXPECT_THAT(opening(folder / "text.h5"), AllOf(HasSubstr("text.h5"), HasSubstr("not an HDF5 file")));
  spill(folder / "empty.h5", "");
  EXPECT_THAT(opening(folder / "empty.h5"), HasSubstr("empty"));
  const std::string whole = slurp(path);
  spill(folder / "cut.h5", whole.substr(0, whole.size() - 100));
  EXPECT_THAT(opening(folder / "cut.h5"), AllOf(HasSubstr("cut.h5"), HasSubstr("truncated")));
}

TEST(Hdf5, RequestsThatDoNotFitAreRefused) {
  const Folder folder;
  const H5File file = H5File::open(write_sample(folder));
  std::vector<std::byte> bytes(16);
  EXPECT_THAT(message_of<DataError>([&] { file.read("m", DType::i32, 2, 2, bytes); }), HasSubstr("rows 2 to 4 of 3"));
  EXPECT_THAT(message_of<DataError>([&] { file.read("m", DType::i32, 0, 1, bytes); }), HasSubstr("do not fit"));
  EXPECT_THAT(message_of<DataError>([&] { file.read("none", DType::i32, 0, 1, bytes); }), HasSubstr("none"));
  EXPECT_THAT(message_of<DataError>([&] { static_cast<void>(file.info("g")); }), HasSubstr("'g'"));
  EXPECT_THAT(message_of<DataError>([&] { static_cast<void>(file.children("m")); }), HasSubstr("'m'"));
  EXPECT_THAT(message_of<DataError>([&] { static_cast<void>(file.int_attribute("/", "text")); }),
              HasSubstr("not an integer"));
  EXPECT_THAT(message_of<DataError>([&] { static_cast<void>(file.string_attribute("g", "number")); }),
              HasSubstr("not a text"));
}

/// Bytes that this process has asked the system to read.
std::int64_t bytes_read() {
  std::ifstream in("/proc/self/io");
  std::string name;
  std::int64_t bytes = -1;
  in >> name >> bytes;
  return name == "rchar:" ? bytes : -1;
}

TEST(Hdf5, ChunksThatAreKeptAreReadOnce) {
  const std::string python = "/usr/bin/python3";
  if (std::system((python + " -c 'import h5py' 2>/dev/null").c_str()) != 0) GTEST_SKIP() << python << " has no h5py";
  if (bytes_read() < 0) GTEST_SKIP() << "the system does not count what is read";
  const Folder folder;
  spill(folder / "write.py", R"(import sys, numpy, h5py
values = numpy.random.default_rng(0).integers(0, 256, (64, 40000), dtype='u1')
with h5py.File(sys.argv[1], 'w') as f:
    f.create_dataset('x', data=values, chunks=(32, 10000), compression='gzip', compression_opts=1)
    f['sums'] = values.sum(axis=1).astype('i8')
)");
  const fs::path path = folder / "a.h5";
  ASSERT_EQ(std::system((python + " " + (folder / "write.py").string() + " " + path.string()).c_str()), 0);
  const auto size = static_cast<std::int64_t>(fs::file_size(path));
  for (const std::int64_t most : {std::int64_t{0}, std::int64_t{1} << 22}) {
    const H5File file = H5File::open(path);
    file.keep_chunks("x", most);
    const auto sums = read_rows<std::int64_t>(file, "sums", DType::i64, 0, 64);
    const std::int64_t before = bytes_read();
    for (std::int64_t row = 0; row < 64; row += 4) {
      const auto values = read_rows<std::uint8_t>(file, "x", DType::u8, row, 4, 40000);
      for (std::int64_t i = 0; i < 4; ++i) {
        const auto begin = values.begin() + i * 40000;
        ASSERT_EQ(std::accumulate(begin, begin + 40000, std::int64_t{0}), sums[static_cast<std::size_t>(row + i)]);
      }
    }
    const std::int64_t read = bytes_read() - before;
    EXPECT_TRUE(most > 0 ? read < size + size / 4 : read > 4 * size) << read << " bytes of " << size;
  }
}

TEST(Hdf5, ThreadsMayShareAFile) {
  const Folder folder;
  const std::array<std::int64_t, 1> extent{64};
  std::vector<std::int32_t> values(64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
  {
    H5File file = H5File::create(folder / "a.h5");
    file.write_all("x", DType::i32, extent, bytes_of(values));
    file.close();
  }
  const H5File file = H5File::open(folder / "a.h5");
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t i = 0; i < 50; ++i) {
        const std::int64_t at = (i * 7 + t) % 64;
        if (read_rows<std::int32_t>(file, "x", DType::i32, at, 1)[0] != at) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace renai
