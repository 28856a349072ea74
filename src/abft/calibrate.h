// Measures V-ABFT's e_max on a platform (section 3.6, "practical calibration protocol").
//
// The paper's checksums are the platform's own, in C's dtype: C's row sums on one side, A times the row sums of B on
// the other. Each is rounded, and so their difference is about 2 u, however long the rows. Checksums in fp64 would not
// do: over a row of positive elements the roundings of C cancel as 1 / sqrt(N), but V-ABFT's threshold of signed
// elements, whose sum is small, takes no such cancellation into account.
#pragma once

#include <cstdint>
#include <span>

namespace ttrace::abft {

// The protocol's "20 % safety margin", by which the largest error is multiplied.
inline constexpr double kCalibrationMargin = 1.2;

// Returns the largest |E| / |checksum| over the rows of a product (equation 25). For each row there are the sum of C's
// row and the checksum A (B 1), as the platform computed them in C's dtype.
double relative_error(std::span<const double> sums, std::span<const double> checksums);

}  // namespace ttrace::abft
