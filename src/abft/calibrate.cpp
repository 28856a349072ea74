#include "abft/calibrate.h"

#include <algorithm>
#include <cmath>

namespace ttrace::abft {

double relative_error(std::span<const double> sums, std::span<const double> checksums) {
  double largest = 0;
  for (std::size_t row = 0; row < checksums.size(); ++row) {
    const double error = std::fabs(sums[row] - checksums[row]) / std::fabs(checksums[row]);
    largest = std::isfinite(error) ? std::max(largest, error) : error;
    if (!std::isfinite(error)) break;
  }
  return largest;
}

}  // namespace ttrace::abft
