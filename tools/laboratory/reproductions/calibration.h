// V-ABFT's calibration protocol (section 3.6), with a matrix product of the caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "reproductions/mutable_matrix_view.h"

namespace ttrace::reproductions {

// The platform's own matrix product: fills C, row-major, with A B.
using Multiply = std::function<void(const abft::MatrixView& a, const abft::MatrixView& b, const MutableMatrixView& c)>;

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

}  // namespace ttrace::reproductions
