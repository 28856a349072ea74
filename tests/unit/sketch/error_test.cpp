#include "sketch/error.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace ttrace {
namespace {

constexpr Shape::value_type kSide = 256;  // 4 cells: the fewest that are sketched, and the least sure
using Values = std::vector<float>;
using Random = std::mt19937_64;

struct Estimate {
  double ratio;  // estimated over true norm
  double widening;
};

Estimate estimate(const Values& difference, std::int64_t rows, double sureness) {
  const std::string sketch =
      sketch_of(reinterpret_cast<const std::byte*>(difference.data()), Dtype::kFloat32, {rows, kSide}, {128, 128});
  std::vector<CellSums> sums;
  double square = 0, estimated = 0;
  for (std::size_t at = 0; at < sketch.size(); at += bytes_of_cell(Dtype::kFloat32)) {
    const Cell cell = read_cell(reinterpret_cast<const std::byte*>(sketch.data()) + at, Dtype::kFloat32);
    sums.push_back(cell.sums);
    square += cell.square;
    for (const double sum : cell.sums) estimated += sum * sum;
  }
  return {std::sqrt(estimated / square), widening_of(sums, sureness)};
}

// Values of one trial that several elements share, by a key.
float shared(std::uint64_t trial, std::uint64_t key) {
  Random random(trial * 1'000'003 + key);
  return std::normal_distribution<float>()(random);
}

}  // namespace

TEST_SUITE("sketch") {
  // The signs are one fixed table; what is drawn at random here are differences of each kind.
  TEST_CASE("estimates exceed their widened bound no more often than was asked for") {
    constexpr int kTrials = 400;
    const double sureness = std::log(50.0);
    using Make = std::function<void(std::uint64_t, Values&)>;
    const auto dense = [](std::uint64_t trial, Values& values) {
      Random random(trial);
      std::normal_distribution<float> normal;
      for (float& value : values) value = normal(random);
    };
    const std::vector<std::pair<const char*, Make>> kinds = {
        {"dense", dense},
        {"one row",
         [](std::uint64_t trial, Values& values) {
           for (std::size_t j = 0; j < kSide; ++j) values[trial % kSide * kSide + j] = shared(trial, j);
         }},
        {"one column",
         [](std::uint64_t trial, Values& values) {
           for (std::size_t i = 0; i < kSide; ++i) values[i * kSide + trial % kSide] = shared(trial, i);
         }},
        {"a bias: every row alike",
         [](std::uint64_t trial, Values& values) {
           Values row(kSide);
           for (std::size_t j = 0; j < kSide; ++j) row[j] = shared(trial, j);
           for (std::size_t i = 0; i < values.size(); ++i) values[i] = row[i % kSide];
         }},
        {"every cell alike",
         [&](std::uint64_t trial, Values& values) {
           Values cell(128 * 128);
           dense(trial, cell);
           for (std::size_t i = 0; i < values.size(); ++i) values[i] = cell[i / kSide % 128 * 128 + i % 128];
         }},
        {"rank one",
         [](std::uint64_t trial, Values& values) {
           Values left(kSide), right(kSide);
           for (std::size_t j = 0; j < kSide; ++j) left[j] = shared(trial, j), right[j] = shared(trial, kSide + j);
           for (std::size_t i = 0; i < values.size(); ++i) values[i] = left[i / kSide] * right[i % kSide];
         }},
        {"few elements",
         [](std::uint64_t trial, Values& values) {
           Random random(trial);
           for (int i = 0; i < 5; ++i) values[random() % values.size()] = 1;
         }},
        {"few elements of one sum",
         [](std::uint64_t trial, Values& values) {
           Random random(trial);
           const std::size_t row = random() % kSide;
           for (std::size_t j = random() % 16; j < 128; j += 16) values[row * kSide + j] = 1;
         }},
        {"heavy tails",
         [](std::uint64_t trial, Values& values) {
           Random random(trial);
           std::student_t_distribution<float> student(1.5F);
           for (float& value : values) value = student(random);
         }},
    };
    for (const auto& kind : kinds) {
      int above = 0;
      double sum = 0, widest = 0;
      for (std::uint64_t trial = 1; trial <= kTrials; ++trial) {
        Values values(kSide * kSide);
        kind.second(trial, values);
        const Estimate found = estimate(values, kSide, sureness);
        above += found.ratio > found.widening;
        sum += found.ratio * found.ratio;
        widest = std::max(widest, found.widening);
      }
      INFO(kind.first, ": ", above, " of ", kTrials, " above, mean square of the ratio ", sum / kTrials,
           ", widened by up to ", widest);
      CHECK(above <= kTrials / 50);
      CHECK(sum / kTrials == doctest::Approx(1).epsilon(0.2));
    }
  }

  TEST_CASE("what is dense is widened by less the larger it is") {
    double last = 3;
    for (const std::int64_t rows : {256, 2048, 16384}) {
      Values values(static_cast<std::size_t>(rows * kSide));
      Random random(7);
      std::normal_distribution<float> normal;
      for (float& value : values) value = normal(random);
      const double widening = estimate(values, rows, kSureness).widening;
      CHECK(widening > 1);
      CHECK(widening < last);
      last = widening;
    }
    CHECK(last < 1.3);
  }

  TEST_CASE("nothing differs") { CHECK(widening_of({}) == 1); }
}

}  // namespace ttrace
