// V-ABFT's e_max measured on a platform (section 3.6, "practical calibration protocol").
#pragma once

#include "ttrace/abft/verify.h"

namespace ttrace::abft {

// "20 % safety margin".
inline constexpr double kCalibrationMargin = 1.2;

// The largest |E| / |checksum| over the rows of a product (equation 25).
double relative_error(const Product& product);

}  // namespace ttrace::abft
