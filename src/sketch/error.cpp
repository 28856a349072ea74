#include "sketch/error.h"

#include <algorithm>
#include <cmath>

namespace ttrace {

double widening_of(std::span<const CellSums> difference, double sureness) {
  // Divided by the largest sum: fourth powers of small ones would vanish.
  double unit = 0;
  for (const CellSums& sums : difference) {
    for (const double sum : sums) unit = std::max(unit, std::fabs(sum));
  }
  if (unit == 0) return 1;
  double total = 0, fourth = 0, within = 0;
  std::array<std::array<double, kCellSums>, kCellSums> products{};
  for (const CellSums& sums : difference) {
    double square_of_cell = 0, fourth_of_cell = 0;
    for (std::size_t i = 0; i < kCellSums; ++i) {
      const double sum = sums[i] / unit;
      square_of_cell += sum * sum;
      fourth_of_cell += sum * sum * sum * sum;
      for (std::size_t j = 0; j < i; ++j) products[i][j] += sum * (sums[j] / unit);
    }
    total += square_of_cell;
    fourth += fourth_of_cell;
    within += (square_of_cell * square_of_cell - fourth_of_cell) / 2;
  }
  double in_common = -within;  // of the products of two different sums, the squares that are of two cells
  for (std::size_t i = 0; i < kCellSums; ++i) {
    for (std::size_t j = 0; j < i; ++j) in_common += products[i][j] * products[i][j];
  }
  in_common = std::max(in_common * 2 / (kCellSums - 1), 0.0);                   // 16 times their mean
  const double square = std::min((fourth + in_common) / (total * total), 1.0);  // |a|_2^2
  const double most = std::min(std::max(square, 1 / total), 1.0);               // |a|_inf
  return std::sqrt(1 + 2 * std::sqrt(square * sureness) + 2 * most * sureness);
}

}  // namespace ttrace
