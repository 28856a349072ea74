#include "ttrace/abft/calibrate.h"

#include <algorithm>
#include <cmath>

namespace ttrace::abft {

double relative_error(const Product& product) {
  double largest = 0;
  for (const LineCheck& line : check_lines(product).rows) {
    largest = std::max(largest, std::fabs(line.sum_difference) / std::fabs(line.checksum));
  }
  return largest;
}

}  // namespace ttrace::abft
