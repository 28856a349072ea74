#include "tolerance/quantiles.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttrace {
namespace {

// The continued fraction of the incomplete beta function (NIST DLMF, 8.17.22), by Lentz' method as modified by Thompson
// and Barnett. It converges fast for x < (a + 1) / (a + b + 2).
double beta_fraction(double x, double a, double b) {
  constexpr double kTiny = 1e-300;
  constexpr int kMostSteps = 100'000;
  const auto nonzero = [](double value) { return std::fabs(value) < kTiny ? kTiny : value; };
  double c = 1, d = 1 / nonzero(1 - (a + b) * x / (a + 1)), fraction = d;
  for (int m = 1; m < kMostSteps; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / nonzero(1 + even * d);
    c = nonzero(1 + even / c);
    fraction *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / nonzero(1 + odd * d);
    c = nonzero(1 + odd / c);
    fraction *= d * c;
    if (std::fabs(d * c - 1) < 4 * std::numeric_limits<double>::epsilon()) break;
  }
  return fraction;
}

// The regularized incomplete beta function I_x(a, b).
double incomplete_beta(double x, double a, double b) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  const double power =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return power * beta_fraction(x, a, b) / a;
  return 1 - power * beta_fraction(1 - x, b, a) / b;
}

// P(F > x)
double fisher_tail(double x, double numerator, double denominator) {
  return incomplete_beta(denominator / (denominator + numerator * x), denominator / 2, numerator / 2);
}

// Returns where `tail`, which falls, is `p`.
template <typename Tail>
double find(double p, const Tail& tail) {
  double low = 1e-12, high = 1;
  while (tail(high) > p && high < 1e300) high *= 16;
  for (int i = 0; i < 100 && high > low * (1 + 1e-13); ++i) {
    const double middle = std::sqrt(low * high);
    (tail(middle) > p ? low : high) = middle;
  }
  return high;
}

}  // namespace

double fisher_quantile(double p, double numerator, double denominator) {
  return find(p, [&](double x) { return fisher_tail(x, numerator, denominator); });
}

double student_quantile(double p, double degrees) { return std::sqrt(fisher_quantile(p, 1, degrees)); }

double normal_quantile(double p) {
  return find(p, [](double z) { return std::erfc(z / std::sqrt(2.0)) / 2; });
}

}  // namespace ttrace
