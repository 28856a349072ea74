#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "numeric/convert.h"
#include "support/differences.h"

namespace {

using namespace ttrace;
using test::Bytes;
using test::difference;
using test::Shards;

// Compares all fields, floating-point numbers by their bits.
std::string bits_of(const Difference& d) {
  std::string text = fmt::format("{} {} {} {} {} {} {} ", d.elements, d.differing, d.reference_nan, d.reference_inf,
                                 d.candidate_nan, d.candidate_inf, d.nonfinite_mismatch);
  text += fmt::format("{:a} {:a} {:a} {:a} {:a} {} {} {} {:a} {:a} ", d.reference_square, d.candidate_square,
                      d.difference_square, d.along, d.max_abs, d.worst_index, d.worst_rank, d.worst_local_index,
                      d.worst_reference, d.worst_candidate);
  for (const auto& [rank, square] : d.square_by_rank) text += fmt::format("{}:{:a} ", rank, square);
  for (const auto& [rank, count] : d.nonfinite_by_rank) text += fmt::format("{}:{} ", rank, count);
  text += fmt::format("{:a} {} {:a} {} ", d.reference_max_abs, d.rows, d.row_square, d.worst_row);
  text += fmt::format("{:a} {} {:a} {}", d.replica_square, d.replica_ranks, d.reference_replica_square,
                      d.reference_replica_ranks);
  return text;
}

// Reads a side's values element by element in fp64, without tiles, blocks or lanes.
std::vector<double> plain_values(const LogicalTensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(element_count(tensor.shape)), 0);
  for (const Piece& piece : tensor.pieces()) {
    if (piece.replica != 0) continue;
    for (std::int64_t n = 0; n < element_count(piece.logical.size); ++n) {
      std::int64_t rest = n, to = 0, from = piece.offset, to_step = 1;
      for (std::size_t i = tensor.shape.size(); i-- > 0; rest /= piece.logical.size[i]) {
        const std::int64_t step = rest % piece.logical.size[i];
        to += (piece.logical.start[i] + step) * to_step;
        from += step * piece.strides[i];
        to_step *= tensor.shape[i];
      }
      double value = 0;
      widen(piece.data + from * size_of(piece.entry->dtype), piece.entry->dtype, 1, &value);
      values[static_cast<std::size_t>(to)] += value;
    }
  }
  for (double& value : values) value /= tensor.scale;
  return values;
}

Piece holder_of(const LogicalTensor& tensor, const Shape& index) {
  const std::vector<Piece> pieces = tensor.pieces();
  return *std::find_if(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    bool inside = piece.replica == 0;
    for (std::size_t i = 0; i < index.size(); ++i) {
      inside =
          inside && index[i] >= piece.logical.start[i] && index[i] < piece.logical.start[i] + piece.logical.size[i];
    }
    return inside;
  });
}

void check_worst(const Difference& measured, const LogicalTensor& candidate, const std::vector<double>& a,
                 const std::vector<double>& b, double max_abs) {
  CHECK(measured.max_abs == doctest::Approx(max_abs).epsilon(2e-7));
  REQUIRE(measured.worst_index.size() == (max_abs == 0 ? 0 : candidate.shape.size()));
  if (max_abs == 0) return;
  std::size_t at = 0;
  for (std::size_t i = 0; i < candidate.shape.size(); ++i) {
    at = at * static_cast<std::size_t>(candidate.shape[i]) + static_cast<std::size_t>(measured.worst_index[i]);
  }
  CHECK(measured.worst_reference == a[at]);
  CHECK(measured.worst_candidate == b[at]);
  CHECK(measured.max_abs == doctest::Approx(std::fabs(a[at] - b[at])).epsilon(1e-15));
  const Piece holder = holder_of(candidate, measured.worst_index);
  CHECK(measured.worst_rank == holder.rank);
  std::int64_t position = 0, offset = holder.offset;
  for (std::size_t i = 0; i < candidate.shape.size(); ++i) {
    position = position * holder.entry->shape[i] + measured.worst_local_index[i];
    offset += (measured.worst_index[i] - holder.logical.start[i]) * holder.strides[i];
  }
  CHECK(position == offset);
}

void check_rows(const Difference& measured, Dtype dtype, const Shape& shape, const std::vector<double>& a,
                const std::vector<double>& b) {
  const std::int64_t width = shape.back(), rows = static_cast<std::int64_t>(a.size()) / width;
  if (!is_floating(dtype) || rows < 2 || width < 2) {
    CHECK(measured.rows == 0);
    CHECK(measured.row_err() == 0);
    return;
  }
  std::vector<double> squares(static_cast<std::size_t>(rows));
  double whole = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares[i / static_cast<std::size_t>(width)] += (a[i] - b[i]) * (a[i] - b[i]);
    whole += a[i] * a[i];
  }
  const double largest = *std::max_element(squares.begin(), squares.end());
  CHECK(measured.rows == rows);
  CHECK(measured.row_square == doctest::Approx(largest).epsilon(1e-6));
  if (largest == 0) return;
  REQUIRE(measured.worst_row >= 0);
  CHECK(squares[static_cast<std::size_t>(measured.worst_row)] == doctest::Approx(largest).epsilon(1e-6));
  CHECK(measured.row_err() == doctest::Approx(std::sqrt(largest * static_cast<double>(rows) / whole)).epsilon(1e-6));
}

void check_against_plain(const LogicalTensor& reference, const LogicalTensor& candidate) {
  const Difference measured = difference(reference, candidate);
  const std::vector<double> a = plain_values(reference), b = plain_values(candidate);
  double aa = 0, bb = 0, dd = 0, along = 0, max_abs = 0, largest = 0;
  std::int64_t differing = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    aa += a[i] * a[i], bb += b[i] * b[i], along += (b[i] - a[i]) * a[i];
    largest = std::max(largest, std::fabs(a[i]));
    dd += (a[i] - b[i]) * (a[i] - b[i]);
    differing += a[i] != b[i];
    max_abs = std::max(max_abs, std::fabs(a[i] - b[i]));
  }
  CHECK(measured.elements == static_cast<std::int64_t>(a.size()));
  CHECK(measured.differing == differing);
  CHECK(measured.reference_square == doctest::Approx(aa).epsilon(1e-6));
  CHECK(measured.candidate_square == doctest::Approx(bb).epsilon(1e-6));
  CHECK(measured.difference_square == doctest::Approx(dd).epsilon(1e-6));
  CHECK(std::fabs(measured.along - along) <= 1e-6 * std::sqrt(aa * dd));
  CHECK(measured.reference_max_abs == doctest::Approx(largest).epsilon(2e-7));
  check_rows(measured, reference.dtype, reference.shape, a, b);
  CHECK(measured.nonfinite_mismatch == 0);
  double by_rank = 0;
  for (const auto& [rank, square] : measured.square_by_rank) by_rank += square;
  CHECK(by_rank == doctest::Approx(measured.difference_square).epsilon(1e-12));
  check_worst(measured, candidate, a, b, max_abs);
}

// Adds noise of relative size `noise` to the reference's values.
Bytes noisy(std::mt19937_64& random, const Bytes& bytes, double noise) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  std::normal_distribution<double> normal;
  for (float& value : values) value = static_cast<float>(value * (1 + noise * normal(random)));
  return test::bytes_of(values);
}

TEST_SUITE("compare") {
  TEST_CASE("every pair of dtypes, however it is cut, measures what a plain fp64 loop measures") {
    std::mt19937_64 random(1);
    const Shape shape = {37, 6, 52};
    const std::vector<Shape> cuts = {{1, 1, 1}, {4, 1, 1}, {1, 1, 3}, {2, 3, 1}, {1, 1, 52}};
    for (std::uint8_t a_type = kDtypeFirst; a_type <= kDtypeLast; ++a_type) {
      for (std::uint8_t b_type = kDtypeFirst; b_type <= kDtypeLast; ++b_type) {
        Shards shards;
        const auto a = static_cast<Dtype>(a_type), b = static_cast<Dtype>(b_type);
        CAPTURE(name_of(a));
        CAPTURE(name_of(b));
        LogicalTensor reference = shards.tensor(a, shape), candidate = shards.tensor(b, shape);
        const std::int64_t count = element_count(shape);
        shards.add(reference, test::random_elements(random, a, count), {.parts = cuts[random() % cuts.size()]});
        shards.add(candidate, test::random_elements(random, b, count),
                   {.parts = cuts[random() % cuts.size()], .margin = static_cast<std::int64_t>(random() % 2)});
        check_against_plain(reference, candidate);
      }
    }
  }

  TEST_CASE("every number that one or two bytes can hold is measured as it is") {
    for (const Dtype dtype :
         {Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat8E4M3, Dtype::kFloat8E5M2, Dtype::kInt8, Dtype::kUInt8}) {
      Bytes numbers;
      const std::int64_t bytes = size_of(dtype);
      for (unsigned bits = 0; bits < 1u << (8 * bytes); ++bits) {
        const std::byte pattern[] = {static_cast<std::byte>(bits & 0xff), static_cast<std::byte>(bits >> 8)};
        double value = 0;
        widen(pattern, dtype, 1, &value);
        if (std::isfinite(value)) numbers.insert(numbers.end(), pattern, pattern + bytes);
      }
      const std::int64_t count = static_cast<std::int64_t>(numbers.size()) / bytes;
      for (std::int64_t at = 0; at < count; at += 100) {
        Shards shards;
        const std::int64_t size = std::min<std::int64_t>(100, count - at);
        LogicalTensor reference = shards.tensor(dtype, {size}), candidate = reference;
        const auto first = numbers.begin() + at * bytes;
        shards.add(reference, Bytes(first, first + size * bytes), {.parts = {1}});
        shards.add(candidate, Bytes(static_cast<std::size_t>(size * bytes)), {.parts = {1}});
        CAPTURE(name_of(dtype));
        CAPTURE(at);
        check_against_plain(reference, candidate);
      }
    }
  }

  TEST_CASE("a tensor of many tiles, cut along different dimensions, measures what a plain loop measures") {
    std::mt19937_64 random(2);
    for (const Shape& shape : {Shape{1500, 1024}, Shape{3, 400, 700}, Shape{1000003}, Shape{4, 400000}}) {
      Shards shards;
      const Bytes elements = test::random_elements(random, Dtype::kFloat32, element_count(shape));
      LogicalTensor reference = shards.tensor(Dtype::kFloat32, shape), candidate = reference;
      shards.add(reference, elements,
                 {.parts = shape.size() == 1   ? Shape{4}
                           : shape.size() == 2 ? Shape{4, 1}
                                               : Shape{1, 4, 1}});
      shards.add(candidate, noisy(random, elements, 1e-6),
                 {.parts = shape.size() == 1   ? Shape{3}
                           : shape.size() == 2 ? Shape{1, 8}
                                               : Shape{1, 1, 2}});
      check_against_plain(reference, candidate);
    }
  }

  TEST_CASE("partial terms are summed and declared scales divided out") {
    std::mt19937_64 random(3);
    for (const Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kBFloat16, Dtype::kFloat16, Dtype::kInt32}) {
      for (const double scale : {1.0, 0.25, 3.0}) {
        Shards shards;
        const Shape shape = {60, 50};
        LogicalTensor reference = shards.tensor(dtype, shape), candidate = reference;
        const auto elements = [&] { return test::random_elements(random, dtype, element_count(shape)); };
        shards.add(reference, elements(), {.parts = {3, 1}});
        shards.add(candidate, elements(), {.parts = {2, 1}});
        candidate.scale = scale;
        CAPTURE(name_of(dtype));
        CAPTURE(scale);
        check_against_plain(reference, candidate);
        shards.add(candidate, elements(), {.parts = {1, 2}, .first_rank = 2, .term = 1});
        reference.scale = 2;
        check_against_plain(reference, candidate);
      }
    }
  }

  TEST_CASE("values whose fp32 squares vanish or overflow are measured in fp64") {
    std::mt19937_64 random(4);
    for (const double magnitude : {1e-42, 1e-30, 1e-22, 1e-17, 1e15, 1e18, 1e22, 1e30, 3e37}) {
      for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
        Shards shards;
        LogicalTensor reference = shards.tensor(dtype, {5000}), candidate = reference;
        shards.add(reference, test::random_elements(random, dtype, 5000, magnitude), {.parts = {1}});
        shards.add(candidate, test::random_elements(random, dtype, 5000, magnitude), {.parts = {1}});
        CAPTURE(magnitude);
        check_against_plain(reference, candidate);
      }
    }
  }

  TEST_CASE("one block can hold ordinary, tiny and zero values side by side") {
    std::vector<float> reference(4096, 0), candidate(4096, 0);
    for (std::size_t i = 0; i < 4096; i += 3) reference[i] = 1e-25f, candidate[i] = 2e-25f;
    const Difference tiny = difference(reference, candidate);
    CHECK(tiny.rel_err() == doctest::Approx(1));
    CHECK(tiny.differing == 1366);
    reference[7] = candidate[7] = 1;
    CHECK(difference(reference, candidate).rel_err() == doctest::Approx(1e-25 * std::sqrt(1366)));
  }

  TEST_CASE("1 to 8 threads give the same bits") {
    std::mt19937_64 random(5);
    Shards shards;
    const Shape shape = {900, 1100};
    const Bytes elements = test::random_elements(random, Dtype::kFloat32, element_count(shape));
    LogicalTensor reference = shards.tensor(Dtype::kFloat32, shape), candidate = reference;
    shards.add(reference, elements, {.parts = {4, 1}});
    shards.add(candidate, noisy(random, elements, 1e-3), {.parts = {1, 4}});
    shards.add(candidate, noisy(random, elements, 1e-3), {.parts = {2, 2}, .first_rank = 4, .replica = 1});
    const std::string once = bits_of(difference(reference, candidate, 1));
    for (const int threads : {2, 3, 8}) CHECK(bits_of(difference(reference, candidate, threads)) == once);
  }

  TEST_CASE("every instruction set of this machine gives the same bits") {
    std::mt19937_64 random(6);
    Shards shards;
    std::vector<LogicalTensor> tensors;
    for (std::uint8_t type = kDtypeFirst; type <= kDtypeLast; ++type) {
      const auto dtype = static_cast<Dtype>(type);
      for (int side = 0; side < 2; ++side) {
        tensors.push_back(shards.tensor(dtype, {77, 129}));
        Bytes elements = test::random_elements(random, dtype, 77 * 129);
        if (side == 1) std::fill_n(elements.begin() + 800, size_of(dtype), std::byte{0xff});  // a NaN of any type
        shards.add(tensors.back(), elements, {.parts = {1, 2}});
      }
    }
    const auto measure_all = [&] {
      std::vector<std::string> all;
      for (const LogicalTensor& reference : tensors) {
        for (const LogicalTensor& candidate : tensors) all.push_back(bits_of(difference(reference, candidate)));
      }
      return all;
    };
    const std::vector<std::string> best = measure_all();
    int targets = 0;
    for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1, ++targets) {
      hwy::SetSupportedTargetsForTest(left & -left);
      CAPTURE(std::string(hwy::TargetName(left & -left)));
      const std::vector<std::string> all = measure_all();
      for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == best[i]);
      hwy::SetSupportedTargetsForTest(0);
    }
    CHECK(targets >= 1);
  }
}

}  // namespace
