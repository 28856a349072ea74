// Derives errors from the measured sums. No error may come out small because a sum overflowed, vanished or is not a
// number: that would be a silent pass. Where the sums cannot tell, the error is infinity.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/finding.h"

namespace ttrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns sqrt(part / whole) for sums of squares. `differs` tells a part of exactly 0 from squares that vanished.
double relative_norm(double part, double whole, bool differs) {
  if (!differs) return 0;
  const double ratio = std::sqrt(part) / std::sqrt(whole);
  const bool vanished = part < std::numeric_limits<double>::min() && whole < std::numeric_limits<double>::min();
  return vanished || std::isnan(ratio) || !std::isfinite(part) || !std::isfinite(whole) ? kInfinity : ratio;
}

}  // namespace

double Difference::rel_err() const {
  return relative_norm(difference_square, reference_square, difference_square > 0 || max_abs > 0);
}

double Difference::scale_err() const {
  if (difference_square == 0 && max_abs == 0) return 0;
  const double value = along / reference_square;
  return std::isfinite(value) && std::isfinite(rel_err()) ? value : kInfinity;
}

double Difference::residual_err() const {
  const double whole = rel_err(), part = scale_err();
  return std::isfinite(whole) ? std::sqrt(std::max(whole * whole - part * part, 0.0)) : kInfinity;
}

double Difference::row_err() const {
  return rows == 0 ? 0 : relative_norm(row_square * static_cast<double>(rows), reference_square, worst_row >= 0);
}

double Difference::cell_err() const {
  if (!sketch || sketch->cell_square == 0) return 0;
  const double cells = static_cast<double>(elements) / static_cast<double>(sketch->cell_elements);
  return std::sqrt(sketch->cell_square) / std::sqrt(reference_square / cells);
}

double Difference::element_err() const {
  if (max_abs == 0) return 0;
  const double ratio = max_abs / std::sqrt(reference_square / static_cast<double>(elements));
  return std::isnan(ratio) ? kInfinity : ratio;
}

double Difference::replica_rel_err() const {
  return relative_norm(replica_square, candidate_square, replica_square > 0);
}

double Difference::one_minus_cosine() const {
  const double a = std::sqrt(reference_square), b = std::sqrt(candidate_square);
  if (a == 0 && b == 0) return 0;
  if (a == 0 || b == 0) return 1;
  const double value = (difference_square - (a - b) * (a - b)) / (2 * a * b);
  return std::isnan(value) ? kInfinity : std::max(value, 0.0);
}

double Difference::uniform_factor() const {
  return reference_square > 0 ? 1 + along / reference_square : std::numeric_limits<double>::quiet_NaN();
}

double Difference::uniform_factor_residual() const {
  // ||B - fA||^2 with the least-squares f, written as ||(B - A) - (f - 1) A||^2 = ||D||^2 - <D, A>^2 / ||A||^2.
  if (candidate_square == 0) return reference_square == 0 ? 0 : 1;
  if (reference_square == 0) return 1;
  const double unexplained = difference_square - along * along / reference_square;
  const double value = std::sqrt(std::max(unexplained, 0.0) / candidate_square);
  return std::isnan(value) ? kInfinity : value;
}

}  // namespace ttrace
