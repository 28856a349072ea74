// V-ABFT's e_max measured on a platform (section 3.6, "practical calibration protocol").
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ttrace/abft/verify.h"

namespace ttrace::abft {

// The platform's own matrix product: fills C, row-major, with A B.
using Multiply = std::function<void(const MatrixView& a, const MatrixView& b, const MutableMatrixView& c)>;

// "20 % safety margin".
inline constexpr double kCalibrationMargin = 1.2;

// The largest |E| / |checksum| over the rows of a product (equation 25).
double relative_error(const Product& product);

struct CalibrationSize {
  std::int64_t m = 0, k = 0, n = 0;
};
struct Calibration {
  std::vector<double> largest;  // of each size
  double e_max = 0;             // the largest of all, with a margin of 20 %
};

// `trials` products of |N(1, 1)| elements at each size; positive, so that no checksum cancels to zero.
Calibration calibrate(const Multiply& multiply, Dtype operand, Dtype output, std::span<const CalibrationSize> sizes,
                      int trials, std::uint64_t seed);

}  // namespace ttrace::abft
