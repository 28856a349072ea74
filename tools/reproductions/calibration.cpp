#include "reproductions/calibration.h"

#include <algorithm>
#include <cmath>

#include "reproductions/random.h"
#include "ttrace/abft/calibrate.h"
#include "ttrace/numeric/convert.h"

namespace ttrace::reproductions {
namespace {

std::vector<std::byte> positive_matrix(Dtype dtype, std::int64_t elements, Random& random) {
  std::vector<double> values(static_cast<std::size_t>(elements));
  for (double& value : values) value = std::fabs(1 + random.normal());
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements * size_of(dtype)));
  narrow(values.data(), dtype, elements, bytes.data());
  return bytes;
}

}  // namespace

Calibration calibrate(const Multiply& multiply, Dtype operand, Dtype output, std::span<const CalibrationSize> sizes,
                      int trials, std::uint64_t seed) {
  Calibration calibration;
  Random random(seed);
  for (const auto& [m, k, n] : sizes) {
    double largest = 0;
    for (int trial = 0; trial < trials; ++trial) {
      const std::vector<std::byte> a = positive_matrix(operand, m * k, random);
      const std::vector<std::byte> b = positive_matrix(operand, k * n, random);
      std::vector<std::byte> c(static_cast<std::size_t>(m * n * size_of(output)));
      const abft::Term term = {abft::row_major(a.data(), operand, m, k), abft::row_major(b.data(), operand, k, n)};
      multiply(term.a, term.b, mutable_row_major(c.data(), output, m, n));
      largest = std::max(largest, abft::relative_error({{term}, abft::row_major(c.data(), output, m, n), {}}));
    }
    calibration.largest.push_back(largest);
    calibration.e_max = std::max(calibration.e_max, abft::kCalibrationMargin * largest);
  }
  return calibration;
}

}  // namespace ttrace::reproductions
