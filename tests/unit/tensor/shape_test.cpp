// Shape, DType and DTensor.
#include "renai/tensor/shape.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "renai/base/error.hpp"
#include "renai/tensor/dtensor.hpp"
#include "renai/tensor/dtype.hpp"

namespace renai {
namespace {

TEST(Shape, CountsElements) {
  EXPECT_EQ(Shape().elems(), 1);
  EXPECT_EQ((Shape{8, 28, 28, 1}.elems()), 6272);
  EXPECT_EQ((Shape{8, 0}.elems()), 0);
  EXPECT_EQ((Shape{1 << 20, 1 << 20}.elems()), std::int64_t{1} << 40);
}

TEST(Shape, AccessorsOfImagesAndMatrices) {
  const Shape image{8, 28, 30, 3};
  EXPECT_EQ(image.n(), 8);
  EXPECT_EQ(image.h(), 28);
  EXPECT_EQ(image.w(), 30);
  EXPECT_EQ(image.c(), 3);
  const Shape matrix{16, 10};
  EXPECT_EQ(matrix.n(), 16);
  EXPECT_EQ(matrix.h(), 1);
  EXPECT_EQ(matrix.w(), 1);
  EXPECT_EQ(matrix.c(), 10);
}

TEST(Shape, Prints) {
  EXPECT_EQ((Shape{8, 28, 28, 1}.str()), "8x28x28x1");
  EXPECT_EQ(Shape().str(), "scalar");
}

TEST(Shape, ComparesByRankAndExtents) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 0}));
  EXPECT_LT((Shape{2, 3}), (Shape{2, 4}));
}

TEST(Shape, RefusesWhatIsNoShape) {
  EXPECT_THROW((Shape{1, 2, 3, 4, 5}), InternalError);
  EXPECT_THROW((Shape{2, -1}), InternalError);
  const Shape matrix{2, 3};
  EXPECT_THROW(matrix[2], InternalError);
  EXPECT_THROW(matrix[-1], InternalError);
  EXPECT_THROW(Shape().n(), InternalError);
  EXPECT_THROW(Shape().c(), InternalError);
}

TEST(DType, SizesAndNames) {
  constexpr DType kAll[] = {DType::f32, DType::f16, DType::bf16, DType::f64,
                            DType::i32, DType::i64, DType::u8,   DType::u64};
  constexpr std::int64_t kBytes[] = {4, 2, 2, 8, 4, 8, 1, 8};
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < std::size(kAll); ++i) {
    EXPECT_EQ(dtype_bytes(kAll[i]), kBytes[i]);
    names.insert(dtype_name(kAll[i]));
  }
  EXPECT_EQ(names.size(), std::size(kAll));
  EXPECT_EQ(dtype_name(DType::bf16), "bfloat16");
  EXPECT_THROW(dtype_bytes(static_cast<DType>(99)), InternalError);
}

TEST(DTensor, AlignsAndPrints) {
  EXPECT_EQ(align_slot(0), 0);
  EXPECT_EQ(align_slot(1), 256);
  EXPECT_EQ(align_slot(256), 256);
  EXPECT_EQ(align_slot(257), 512);
  DTensor tensor;
  EXPECT_FALSE(tensor.placed());
  tensor.shape = Shape{2, 3};
  tensor.offset_bytes = 512;
  tensor.size_bytes = 24;
  EXPECT_TRUE(tensor.placed());
  EXPECT_EQ(tensor.str(), "float32[2x3] at 512+24");
}

}  // namespace
}  // namespace renai
