#include "reproductions/calibration.h"

#include <algorithm>
#include <cmath>

#include "abft/calibrate.h"
#include "abft/verify.h"
#include "numeric/convert.h"
#include "reproductions/random.h"

namespace ttrace::reproductions {
namespace {

std::vector<std::byte> matrix_of(double value, Dtype dtype, std::int64_t elements) {
  const std::vector<double> values(static_cast<std::size_t>(elements), value);
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements * size_of(dtype)));
  narrow(values.data(), dtype, elements, bytes.data());
  return bytes;
}

// Multiplies by a vector of ones: the sums of the rows, as the platform rounds them to `output`.
std::vector<std::byte> row_sums(const Multiply& multiply, const abft::MatrixView& matrix, Dtype output) {
  const std::vector<std::byte> ones = matrix_of(1, matrix.dtype, matrix.cols);
  std::vector<std::byte> sums = matrix_of(0, output, matrix.rows);
  multiply(matrix, abft::row_major(ones.data(), matrix.dtype, matrix.cols, 1),
           mutable_row_major(sums.data(), output, matrix.rows, 1));
  return sums;
}

std::vector<double> widened(const std::vector<std::byte>& bytes, Dtype dtype) {
  std::vector<double> values(bytes.size() / static_cast<std::size_t>(size_of(dtype)));
  widen(bytes.data(), dtype, std::ssize(values), values.data());
  return values;
}

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
      const std::vector<std::byte> sums = row_sums(multiply, abft::row_major(c.data(), output, m, n), output);
      const std::vector<std::byte> right = row_sums(multiply, term.b, operand);
      std::vector<std::byte> checksums = matrix_of(0, output, m);
      multiply(term.a, abft::row_major(right.data(), operand, k, 1), mutable_row_major(checksums.data(), output, m, 1));
      largest = std::max(largest, abft::relative_error(widened(sums, output), widened(checksums, output)));
    }
    calibration.largest.push_back(largest);
    calibration.e_max = std::max(calibration.e_max, abft::kCalibrationMargin * largest);
  }
  return calibration;
}

}  // namespace ttrace::reproductions
