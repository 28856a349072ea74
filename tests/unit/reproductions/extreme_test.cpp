#include "reproductions/extreme.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "reproductions/random.h"

namespace {

using namespace ttrace::reproductions;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kNear = 3e38f;
constexpr double kAllowed = 1e-3;

// 1 to 8 with their true sums, 36 and 204, and `wrong` in place 3.
struct Vector {
  std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  float plain = 36, weighted = 204;

  VectorRepair run() { return repair(std::span<float>(values), plain, weighted, kAllowed); }
  void check_corrected(float wrong) {
    values[3] = wrong;
    const VectorRepair result = run();
    CHECK(result.state == VectorState::kCorrected);
    CHECK(result.place == 3);
    CHECK(values[3] == doctest::Approx(4).epsilon(1e-4));
  }
};

template <class T>
struct Encoded {
  DenseMatrix<T> matrix, right;
  Checksums<T> columns, rows;

  explicit Encoded(std::uint64_t seed, std::int64_t size_r = 12, std::int64_t size_c = 9) : matrix(size_r, size_c) {
    Random random(seed);
    for (T& value : matrix.values) value = static_cast<T>(random.normal());
    right = matrix;
    columns = column_checksums(matrix);
    rows = row_checksums(matrix);
    columns.allowed.assign(columns.allowed.size(), kAllowed);
    rows.allowed.assign(rows.allowed.size(), kAllowed);
  }
  bool is_right() const {
    for (std::size_t i = 0; i < right.values.size(); ++i) {
      if (!(std::fabs(matrix.values[i] - right.values[i]) <= kAllowed)) return false;
    }
    return true;
  }
  bool checksums_are_right() const {
    const Checksums<T> of_columns = column_checksums(right), of_rows = row_checksums(right);
    for (std::size_t i = 0; i < columns.plain.size(); ++i) {
      if (!(std::fabs(columns.plain[i] - of_columns.plain[i]) <= kAllowed)) return false;
    }
    for (std::size_t i = 0; i < rows.plain.size(); ++i) {
      if (!(std::fabs(rows.plain[i] - of_rows.plain[i]) <= kAllowed)) return false;
    }
    return true;
  }
};

// INF of both signs, NaN, near-INF, and a moderate error.
const std::vector<float> kErrors = {kInfinity, -kInfinity, kNan, kNear, -kNear, 1e12f, 5000.0f};

TEST_SUITE("reproductions") {
  TEST_CASE("case 1: near-INF and moderate errors, placed by ratio or by size") {
    for (const float wrong : {kNear, -kNear, 1e11f, 1e20f, 2e5f, -300.0f, 4.5f}) Vector().check_corrected(wrong);
  }

  TEST_CASE("cases 2 and 3: INF and NaN are summed up anew") {
    for (const float wrong : {kInfinity, -kInfinity, kNan}) Vector().check_corrected(wrong);
  }

  TEST_CASE("case 2: near-INF whose weighted sum overflows, and a difference that overflows") {
    Vector vector;
    vector.values.assign(2000, 1.0f);
    vector.plain = 2000, vector.weighted = 2001000;
    vector.values[1500] = kNear;  // 1501 * 3e38 is infinite in fp32
    const VectorRepair result = vector.run();
    CHECK(result.state == VectorState::kCorrected);
    CHECK(result.place == 1500);
    CHECK(vector.values[1500] == doctest::Approx(1));
  }

  TEST_CASE("case 4: more than one extreme error is a propagation, of whatever types") {
    for (const float first : kErrors) {
      for (const float second : kErrors) {
        if (std::fabs(first) < 1e10f || std::fabs(second) < 1e10f) continue;
        Vector vector;
        vector.values[1] = first;
        vector.values[6] = second;
        const std::vector<float> before = vector.values;
        CHECK(vector.run().state == VectorState::kPropagated);
        for (std::size_t i : {0, 2, 3, 4, 5, 7}) CHECK(vector.values[i] == before[i]);
      }
    }
  }

  TEST_CASE("a right vector is clean, and wrong checksums are not taken for a wrong vector") {
    CHECK(Vector().run().state == VectorState::kClean);
    for (const float wrong : {kInfinity, kNan, 1e30f, 50.0f}) {
      Vector vector;
      vector.plain = wrong;
      CHECK(vector.run().state == VectorState::kChecksumWrong);
      vector = Vector();
      vector.weighted = wrong;
      CHECK(vector.run().state == VectorState::kChecksumWrong);
    }
  }

  TEST_CASE("two moderate errors are not corrected into a third") {
    Vector vector;
    vector.values[1] += 100;
    vector.values[4] += 70;  // 3.2: no place. A ratio that happens to be whole could not be told apart
    const std::vector<float> before = vector.values;
    CHECK(vector.run().state == VectorState::kUncorrectable);
    CHECK(vector.values == before);
  }

  TEST_CASE_TEMPLATE("0D errors of every type are corrected by either side and by both", T, float, double) {
    for (const float error : kErrors) {
      for (std::uint64_t seed = 0; seed < 30; ++seed) {
        for (int sides = 1; sides <= 3; ++sides) {
          Encoded<T> x(seed);
          Random random(seed);
          x.matrix.at(random.below(12), random.below(9)) = static_cast<T>(error);
          const MatrixRepair result = repair(x.matrix, sides & 1 ? &x.columns : nullptr, sides & 2 ? &x.rows : nullptr);
          CHECK(result.ok());
          CHECK(result.pattern == Pattern::k0D);
          CHECK(x.is_right());
        }
      }
    }
  }

  TEST_CASE_TEMPLATE("1R and 1C errors, deterministic or not, of one type or of mixed ones", T, float, double) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      for (const bool is_row : {true, false}) {
        for (const bool both : {true, false}) {
          Encoded<T> x(seed);
          Random random(seed);
          const std::int64_t line = random.below(is_row ? 12 : 9);
          const bool mixed = random.below(2) == 0;
          const float type = kErrors[static_cast<std::size_t>(random.below(6))];
          for (std::int64_t i = 0; i < (is_row ? 9 : 12); ++i) {
            const float error = mixed ? kErrors[static_cast<std::size_t>(random.below(6))] : type;
            (is_row ? x.matrix.at(line, i) : x.matrix.at(i, line)) = static_cast<T>(error);
          }
          // The checksums along the line were computed from what made it wrong.
          auto& along = is_row ? x.rows : x.columns;
          const auto fresh = is_row ? row_checksums(x.matrix) : column_checksums(x.matrix);
          along.plain[static_cast<std::size_t>(line)] = fresh.plain[static_cast<std::size_t>(line)];
          along.weighted[static_cast<std::size_t>(line)] = fresh.weighted[static_cast<std::size_t>(line)];
          const MatrixRepair result =
              repair(x.matrix, both || is_row ? &x.columns : nullptr, both || !is_row ? &x.rows : nullptr);
          CHECK(result.ok());
          CHECK(result.pattern == (is_row ? Pattern::k1R : Pattern::k1C));
          CHECK(x.is_right());
          if (both) CHECK(x.checksums_are_right());
        }
      }
    }
  }

  TEST_CASE("a moderate 1C error hides from its column's own checksums and is found by the rows") {
    Encoded<float> x(3);
    for (std::int64_t row = 0; row < 12; ++row) x.matrix.at(row, 5) += 10.0f + static_cast<float>(row);
    const Checksums<float> fresh = column_checksums(x.matrix);
    x.columns.plain[5] = fresh.plain[5];
    x.columns.weighted[5] = fresh.weighted[5];
    const MatrixRepair result = repair(x.matrix, &x.columns, &x.rows);
    CHECK(result.ok());
    CHECK(result.pattern == Pattern::k1C);
    CHECK(result.rebuilt == 1);
    CHECK(x.is_right());
    CHECK(x.checksums_are_right());
  }

  TEST_CASE("2D errors are reported, and their checksums are not made again") {
    Encoded<float> x(4);
    for (const std::int64_t row : {2, 7}) {
      for (const std::int64_t col : {1, 4}) x.matrix.at(row, col) = kNan;
    }
    const Checksums<float> before = x.columns;
    CHECK(!repair(x.matrix, &x.columns, &x.rows).ok());
    CHECK(x.columns.plain == before.plain);
  }

  TEST_CASE("the side that cannot help says so") {
    Encoded<float> x(5);
    for (std::int64_t col = 0; col < 9; ++col) x.matrix.at(4, col) = kInfinity;
    CHECK(repair<float>(x.matrix, nullptr, &x.rows).wrong == 1);
  }
}

}  // namespace
