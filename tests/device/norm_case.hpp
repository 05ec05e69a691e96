#pragma once
// Random inputs of a batch norm and their moments in fp64.

#include <utility>

#include "tensor_case.hpp"

namespace renai::testing {

/// Rows and channels: odd channels, rows that are prime, one row, more channels than a column tile has.
inline constexpr std::array<std::pair<std::size_t, std::size_t>, 14> kNormShapes{{{1, 8},
                                                                                  {2, 1},
                                                                                  {7, 3},
                                                                                  {13, 7},
                                                                                  {31, 8},
                                                                                  {17, 10},
                                                                                  {29, 12},
                                                                                  {101, 64},
                                                                                  {11, 100},
                                                                                  {19, 192},
                                                                                  {23, 264},
                                                                                  {5, 2048},
                                                                                  {1031, 1},
                                                                                  {4099, 24}}};

struct Moments {
  double mean = 0, var = 0;
};

/// Each channel has a mean, a spread, a scale and a bias of its own. All tensors are rounded to `dtype`.
struct NormData {
  std::size_t rows, c;
  DType dtype;
  float eps = 1e-5f;
  std::vector<float> x, other, dy, dy2, scale, bias;

  NormData(std::size_t rows_in, std::size_t c_in, DType dtype_in) : rows(rows_in), c(c_in), dtype(dtype_in) {
    std::mt19937 random(static_cast<std::uint32_t>(rows * 7919 + c));
    const std::vector<float> mean = random_floats(random, c, -3, 3), spread = random_floats(random, c, 0.3f, 2);
    scale = random_floats(random, c, -1.5f, 1.5f);
    bias = random_floats(random, c, -1, 1);
    x = random_floats(random, count());
    for (std::size_t i = 0; i < count(); ++i) x[i] = mean[i % c] + spread[i % c] * x[i];
    x = rounded(x, dtype);
    other = rounded(random_floats(random, count()), dtype);
    dy = rounded(random_floats(random, count()), dtype);
    dy2 = rounded(random_floats(random, count()), dtype);
  }

  std::size_t count() const { return rows * c; }
  std::int64_t n() const { return static_cast<std::int64_t>(rows); }
  std::int64_t channels() const { return static_cast<std::int64_t>(c); }
  std::string str() const {
    return std::string(dtype_name(dtype)) + " [" + std::to_string(rows) + ", " + std::to_string(c) + "]";
  }

  std::vector<Moments> moments() const {
    std::vector<Moments> all(c);
    const double n_rows = static_cast<double>(rows);
    for (std::size_t i = 0; i < count(); ++i) all[i % c].mean += double{x[i]} / n_rows;
    for (std::size_t i = 0; i < count(); ++i) {
      const double distance = double{x[i]} - all[i % c].mean;
      all[i % c].var += distance * distance / n_rows;
    }
    return all;
  }
};

}  // namespace renai::testing
