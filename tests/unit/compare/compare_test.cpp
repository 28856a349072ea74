#include "ttrace/compare/compare.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <hwy/targets.h>
#include <limits>
#include <string>

#include "support/shards.h"
#include "ttrace/numeric/convert.h"

namespace {

using namespace ttrace;
using test::Bytes;
using test::Cut;
using test::Shards;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<Difference> compare_one(const LogicalTensor& reference, const LogicalTensor& candidate, int threads = 2) {
  const TensorPair pair{&reference, &candidate};
  return compare({&pair, 1}, {threads, {}});
}

Difference difference(const LogicalTensor& reference, const LogicalTensor& candidate) {
  return compare_one(reference, candidate).front();
}

// One rank on each side.
Difference difference(const std::vector<float>& reference, const std::vector<float>& candidate) {
  Shards shards;
  const Shape shape = {static_cast<std::int64_t>(reference.size())};
  LogicalTensor a = shards.tensor(Dtype::kFloat32, shape), b = a;
  shards.add(a, test::bytes_of(reference), {.parts = {1}});
  shards.add(b, test::bytes_of(candidate), {.parts = {1}});
  return difference(a, b);
}

// All of it, floating-point numbers by their bits.
std::string bits_of(const Difference& d) {
  std::string text = fmt::format("{} {} {} {} {} {} {} ", d.elements, d.differing, d.reference_nan, d.reference_inf,
                                 d.candidate_nan, d.candidate_inf, d.nonfinite_mismatch);
  text += fmt::format("{:a} {:a} {:a} {:a} {:a} {} {} {} {:a} {:a} ", d.reference_square, d.candidate_square,
                      d.difference_square, d.dot, d.max_abs, d.worst_index, d.worst_rank, d.worst_local_index,
                      d.worst_reference, d.worst_candidate);
  for (const auto& [rank, square] : d.square_by_rank) text += fmt::format("{}:{:a} ", rank, square);
  for (const auto& [rank, count] : d.nonfinite_by_rank) text += fmt::format("{}:{} ", rank, count);
  text += fmt::format("{:a} {} {:a} {}", d.replica_square, d.replica_ranks, d.reference_replica_square,
                      d.reference_replica_ranks);
  return text;
}

// A side's values, element by element in fp64, without tiles, blocks or lanes.
std::vector<double> plain_values(const LogicalTensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(element_count(tensor.shape)), 0);
  for (const Piece& piece : tensor.pieces) {
    if (piece.replica != 0) continue;
    for (std::int64_t n = 0; n < element_count(piece.logical.size); ++n) {
      std::int64_t rest = n, to = 0, from = 0, to_step = 1, from_step = 1;
      for (std::size_t i = tensor.shape.size(); i-- > 0; rest /= piece.logical.size[i]) {
        const std::int64_t step = rest % piece.logical.size[i];
        to += (piece.logical.start[i] + step) * to_step;
        from += (piece.local.start[i] + step) * from_step;
        to_step *= tensor.shape[i];
        from_step *= piece.entry->shape[i];
      }
      double value = 0;
      widen(piece.data + from * size_of(piece.entry->dtype), piece.entry->dtype, 1, &value);
      values[static_cast<std::size_t>(to)] += value;
    }
  }
  for (double& value : values) value /= tensor.scale;
  return values;
}

const Piece& holder_of(const LogicalTensor& tensor, const Shape& index) {
  return *std::find_if(tensor.pieces.begin(), tensor.pieces.end(), [&](const Piece& piece) {
    bool inside = piece.replica == 0;
    for (std::size_t i = 0; i < index.size(); ++i) {
      inside = inside && index[i] >= piece.logical.start[i] && index[i] < piece.logical.start[i] + piece.logical.size[i];
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
  const Piece& holder = holder_of(candidate, measured.worst_index);
  CHECK(measured.worst_rank == holder.rank);
  for (std::size_t i = 0; i < candidate.shape.size(); ++i) {
    const std::int64_t inside = measured.worst_local_index[i] - holder.local.start[i];
    CHECK(inside == measured.worst_index[i] - holder.logical.start[i]);
  }
}

void check_against_plain(const LogicalTensor& reference, const LogicalTensor& candidate) {
  const Difference measured = difference(reference, candidate);
  const std::vector<double> a = plain_values(reference), b = plain_values(candidate);
  double aa = 0, bb = 0, dd = 0, ab = 0, max_abs = 0;
  std::int64_t differing = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    aa += a[i] * a[i], bb += b[i] * b[i], ab += a[i] * b[i];
    dd += (a[i] - b[i]) * (a[i] - b[i]);
    differing += a[i] != b[i];
    max_abs = std::max(max_abs, std::fabs(a[i] - b[i]));
  }
  CHECK(measured.elements == static_cast<std::int64_t>(a.size()));
  CHECK(measured.differing == differing);
  CHECK(measured.reference_square == doctest::Approx(aa).epsilon(1e-6));
  CHECK(measured.candidate_square == doctest::Approx(bb).epsilon(1e-6));
  CHECK(measured.difference_square == doctest::Approx(dd).epsilon(1e-6));
  CHECK(std::fabs(measured.dot - ab) <= 1e-6 * std::sqrt(aa * bb));
  CHECK(measured.nonfinite_mismatch == 0);
  double by_rank = 0;
  for (const auto& [rank, square] : measured.square_by_rank) by_rank += square;
  CHECK(by_rank == doctest::Approx(measured.difference_square).epsilon(1e-12));
  check_worst(measured, candidate, a, b, max_abs);
}

// Noise of relative size `noise` on top of the reference's values.
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

  TEST_CASE("a tensor of many tiles, cut along different dimensions, measures what a plain loop measures") {
    std::mt19937_64 random(2);
    for (const Shape& shape : {Shape{1500, 1024}, Shape{3, 400, 700}, Shape{1000003}}) {
      Shards shards;
      const Bytes elements = test::random_elements(random, Dtype::kFloat32, element_count(shape));
      LogicalTensor reference = shards.tensor(Dtype::kFloat32, shape), candidate = reference;
      shards.add(reference, elements, {.parts = shape.size() == 1 ? Shape{4} : shape.size() == 2 ? Shape{4, 1} : Shape{1, 4, 1}});
      shards.add(candidate, noisy(random, elements, 1e-6),
                 {.parts = shape.size() == 1 ? Shape{3} : shape.size() == 2 ? Shape{1, 8} : Shape{1, 1, 2}});
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
    const std::string once = bits_of(compare_one(reference, candidate, 1).front());
    for (const int threads : {2, 3, 8}) CHECK(bits_of(compare_one(reference, candidate, threads).front()) == once);
  }

  TEST_CASE("every instruction set of this machine gives the same bits") {
    std::mt19937_64 random(6);
    Shards shards;
    std::vector<LogicalTensor> tensors;
    for (const Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kBFloat16, Dtype::kFloat16}) {
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

  TEST_CASE("NaN and Inf are counted on each side and left out of the sums") {
    const Difference d = difference({1, kNan, kNan, kInf, kInf, -kInf, 2, 3}, {1, kNan, 5, kInf, -kInf, 6, kNan, 4});
    CHECK(d.reference_nan == 2);
    CHECK(d.reference_inf == 3);
    CHECK(d.candidate_nan == 2);
    CHECK(d.candidate_inf == 2);
    CHECK(d.nonfinite_mismatch == 4);  // NaN-5, Inf--Inf, -Inf-6, 2-NaN
    CHECK(d.differing == 5);
    CHECK(d.reference_square == 10);
    CHECK(d.candidate_square == 17);
    CHECK(d.difference_square == 1);
    CHECK(d.worst_index == Shape{7});
    CHECK(d.nonfinite_by_rank == std::map<std::int32_t, std::int64_t>{{0, 4}});
  }

  TEST_CASE("NaN in the same places on both sides is no difference") {
    std::vector<float> values(10000, 2);
    for (std::size_t i = 0; i < values.size(); i += 97) values[i] = kNan;
    const Difference d = difference(values, values);
    CHECK(d.differing == 0);
    CHECK(d.nonfinite_mismatch == 0);
    CHECK(d.rel_err() == 0);
    CHECK(d.candidate_nan == 104);
  }

  TEST_CASE("integers are compared exactly, beyond what fp64 can tell apart") {
    const std::int64_t big = std::int64_t{1} << 60, least = std::numeric_limits<std::int64_t>::min();
    Shards shards;
    LogicalTensor reference = shards.tensor(Dtype::kInt64, {4}), candidate = reference;
    shards.add(reference, test::bytes_of<std::int64_t>({big, big, 7, least}), {.parts = {1}});
    shards.add(candidate, test::bytes_of<std::int64_t>({big, big + 1, 7, least}), {.parts = {1}});
    const Difference d = difference(reference, candidate);
    CHECK(d.differing == 1);
    CHECK(d.max_abs == 1);
    CHECK(d.worst_index == Shape{1});
    CHECK(d.difference_square == 1);
  }

  TEST_CASE("a scalar is compared, an empty tensor has nothing to compare") {
    Shards shards;
    LogicalTensor reference = shards.tensor(Dtype::kFloat32, {}), candidate = reference;
    shards.add(reference, test::bytes_of<float>({3}), {.parts = {}});
    shards.add(candidate, test::bytes_of<float>({4}), {.parts = {}, .first_rank = 5});
    const Difference d = difference(reference, candidate);
    CHECK(d.elements == 1);
    CHECK(d.max_abs == 1);
    CHECK(d.worst_rank == 5);
    LogicalTensor empty = shards.tensor(Dtype::kFloat32, {8, 0});
    shards.add(empty, {}, {.parts = {2, 1}});
    const Difference none = difference(empty, empty);
    CHECK(none.elements == 0);
    CHECK(none.rel_err() == 0);
  }

  TEST_CASE("of equal differences the first in the logical tensor is named, whichever rank holds it") {
    Shards shards;
    const Shape shape = {4, 6};
    std::vector<float> zeros(24, 0), wrong = zeros;
    wrong[4] = wrong[6] = wrong[23] = 1;  // row 0 on rank 1, row 1 on rank 0
    LogicalTensor reference = shards.tensor(Dtype::kFloat32, shape), candidate = reference;
    shards.add(reference, test::bytes_of(zeros), {.parts = {1, 1}});
    shards.add(candidate, test::bytes_of(wrong), {.parts = {1, 2}});
    const Difference d = difference(reference, candidate);
    CHECK(d.worst_index == Shape{0, 4});
    CHECK(d.worst_rank == 1);
    CHECK(d.worst_local_index == Shape{0, 1});
    CHECK(d.square_by_rank == std::map<std::int32_t, double>{{0, 1}, {1, 2}});
  }

  TEST_CASE("copies that agree in value are no disagreement, whatever their bits") {
    Shards shards;
    LogicalTensor reference = shards.tensor(Dtype::kFloat32, {3}), candidate = reference;
    shards.add(reference, test::bytes_of<float>({0, kNan, 1}), {.parts = {1}});
    shards.add(candidate, test::bytes_of<float>({0, kNan, 1}), {.parts = {1}});
    shards.add(candidate, test::bytes_of<float>({-0.0f, -kNan, 1}), {.parts = {1}, .first_rank = 1, .replica = 1});
    const Difference d = difference(reference, candidate);
    CHECK(d.replica_ranks.empty());
    CHECK(d.replica_square == 0);
    CHECK(d.differing == 0);
  }

  TEST_CASE("a wrong second copy fails on its own merits") {
    Shards shards;
    std::vector<float> values(3000, 1), wrong = values;
    wrong[2999] = 4;
    LogicalTensor reference = shards.tensor(Dtype::kFloat32, {3000}), candidate = reference;
    shards.add(reference, test::bytes_of(values), {.parts = {1}});
    shards.add(candidate, test::bytes_of(values), {.parts = {2}});
    shards.add(candidate, test::bytes_of(values), {.parts = {2}, .first_rank = 2, .replica = 1});
    shards.add(candidate, test::bytes_of(wrong), {.parts = {2}, .first_rank = 4, .replica = 2});
    const Difference d = difference(reference, candidate);
    CHECK(d.replica_ranks == std::vector<std::int32_t>{5});
    CHECK(d.replica_square == 9);
    CHECK(d.rel_err() == doctest::Approx(3 / std::sqrt(3000)));
    CHECK(d.worst_rank == 5);
    CHECK(d.worst_index == Shape{2999});
    CHECK(d.worst_local_index == Shape{1499});
  }

  TEST_CASE("NaN in a second copy only is a mismatch of the tensor") {
    Shards shards;
    LogicalTensor reference = shards.tensor(Dtype::kFloat32, {2}), candidate = reference;
    shards.add(reference, test::bytes_of<float>({1, 2}), {.parts = {1}});
    shards.add(candidate, test::bytes_of<float>({1, 2}), {.parts = {1}});
    shards.add(candidate, test::bytes_of<float>({1, kNan}), {.parts = {1}, .first_rank = 1, .replica = 1});
    const Difference d = difference(reference, candidate);
    CHECK(d.nonfinite_mismatch == 1);
    CHECK(d.candidate_nan == 1);
    CHECK(d.replica_ranks == std::vector<std::int32_t>{1});
  }

  TEST_CASE("a reference whose copies disagree says so") {
    Shards shards;
    LogicalTensor reference = shards.tensor(Dtype::kFloat32, {2}), candidate = reference;
    shards.add(reference, test::bytes_of<float>({1, 2}), {.parts = {1}});
    shards.add(reference, test::bytes_of<float>({1, 5}), {.parts = {1}, .first_rank = 1, .replica = 1});
    shards.add(candidate, test::bytes_of<float>({1, 2}), {.parts = {1}});
    const Difference d = difference(reference, candidate);
    CHECK(d.reference_replica_ranks == std::vector<std::int32_t>{1});
    CHECK(d.reference_replica_square == 9);
    CHECK(d.replica_ranks.empty());
    CHECK(d.rel_err() == 0);
  }

  TEST_CASE("an element that no shard holds is never passed over") {
    Shards shards;
    LogicalTensor reference = shards.tensor(Dtype::kFloat32, {4}), candidate = reference;
    shards.add(reference, test::bytes_of<float>({1, 2, 3, 4}), {.parts = {1}});
    shards.add(candidate, test::bytes_of<float>({1, 2, 3, 4}), {.parts = {2}});
    candidate.pieces.pop_back();
    CHECK_THROWS_WITH(compare_one(reference, candidate),
                      "layer output, iteration 0: 2 of 4 elements were compared");
  }

  TEST_CASE("what a thread throws arrives at the caller") {
    struct Broken : MappedFile {
      const std::byte* data() const override { return nullptr; }
      std::uint64_t size() const override { return 0; }
      void release(const std::byte*, std::uint64_t) const override { throw std::runtime_error("no"); }
    } broken;
    Shards shards;
    LogicalTensor tensor = shards.tensor(Dtype::kFloat32, {4});
    shards.add(tensor, test::bytes_of<float>({1, 2, 3, 4}), {.parts = {2}});
    tensor.pieces.back().file = &broken;
    CHECK_THROWS_WITH(compare_one(tensor, tensor, 3), "no");
  }

  TEST_CASE("progress ends at all bytes of both sides") {
    Shards shards;
    LogicalTensor tensor = shards.tensor(Dtype::kBFloat16, {4});
    shards.add(tensor, Bytes(8), {.parts = {2}});
    const TensorPair pair{&tensor, &tensor};
    std::uint64_t done = 0, all = 0;
    compare({&pair, 1}, {1, [&](std::uint64_t now, std::uint64_t total) { done = now, all = total; }});
    CHECK(done == 16);
    CHECK(all == 16);
  }

  TEST_CASE("statistics tell norm, extremes and what is not finite") {
    const std::vector<float> values = {3, -4, 0, kNan, kInf, -kInf};
    const auto statistics =
        statistics_of(reinterpret_cast<const std::byte*>(values.data()), Dtype::kFloat32, 6);
    CHECK(statistics.norm == 5);
    CHECK(statistics.min == -4);
    CHECK(statistics.max == 3);
    CHECK(statistics.mean == doctest::Approx(-1.0 / 3));
    CHECK(statistics.nan == 1);
    CHECK(statistics.inf == 2);
    CHECK(statistics.zero == 1);
    CHECK(statistics_of(nullptr, Dtype::kFloat32, 0).norm == 0);
  }
}

}  // namespace
