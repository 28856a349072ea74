// Measures V-ABFT's e_max on a platform (section 3.6, "practical calibration protocol").
#pragma once

#include "ttrace/abft/verify.h"

namespace ttrace::abft {

// The protocol's "20 % safety margin", by which the largest error is multiplied.
inline constexpr double kCalibrationMargin = 1.2;

// Returns the largest |E| / |checksum| over the rows of a product (equation 25).
double relative_error(const Product& product);

}  // namespace ttrace::abft
