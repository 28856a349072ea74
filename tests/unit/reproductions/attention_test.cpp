#include "reproductions/attention.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "reproductions/random.h"

namespace {

using namespace ttrace;
using namespace ttrace::reproductions;

template <class T>
DenseMatrix<T> normal(std::int64_t rows, std::int64_t cols, double scale, Random& random) {
  DenseMatrix<T> matrix(rows, cols);
  for (T& value : matrix.values) value = static_cast<T>(scale * random.normal());
  return matrix;
}

template <class T>
struct Example {
  static constexpr std::int64_t kSequence = 20, kWidth = 24;
  DenseMatrix<T> x;
  AttentionWeights<T> weights;
  AttentionOptions<T> options;

  explicit Example(std::uint64_t seed) {
    Random random(seed);
    x = normal<T>(kSequence, kWidth, 1, random);
    for (DenseMatrix<T>* weight : {&weights.query, &weights.key, &weights.value, &weights.output}) {
      *weight = normal<T>(kWidth, kWidth, 1 / std::sqrt(24.0), random);
    }
    for (std::vector<T>* bias : {&weights.query_bias, &weights.key_bias, &weights.value_bias, &weights.output_bias}) {
      if (random.below(2) == 0) *bias = normal<T>(1, kWidth, 0.2, random).values;
    }
    options.heads = 1 + random.below(4);
    options.causal = random.below(2) == 0;
  }

  Attention<T> run() const { return attention(x, weights, options); }
};

template <class T>
double largest_difference(const DenseMatrix<T>& a, const DenseMatrix<T>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a.values[i]) - static_cast<double>(b.values[i]));
    largest = difference <= largest ? largest : difference;  // NaN stays
  }
  return largest;
}

// Plain attention in fp64, element by element.
double plain(const Example<double>& e, std::int64_t row, std::int64_t col) {
  const std::int64_t s = e.kSequence, d = e.kWidth, size = d / e.options.heads;
  const auto project = [&](const DenseMatrix<double>& weight, const std::vector<double>& bias, std::int64_t r,
                           std::int64_t c) {
    double sum = bias.empty() ? 0 : bias[static_cast<std::size_t>(c)];
    for (std::int64_t k = 0; k < d; ++k) sum += e.x.at(r, k) * weight.at(k, c);
    return sum;
  };
  const auto& w = e.weights;
  double result = w.output_bias.empty() ? 0 : w.output_bias[static_cast<std::size_t>(col)];
  for (std::int64_t head = 0; head < e.options.heads; ++head) {
    std::vector<double> p(static_cast<std::size_t>(e.options.causal ? row + 1 : s));
    double total = 0;
    for (std::size_t j = 0; j < p.size(); ++j) {
      double score = 0;
      for (std::int64_t c = head * size; c < (head + 1) * size; ++c) {
        score += project(w.query, w.query_bias, row, c) * project(w.key, w.key_bias, static_cast<std::int64_t>(j), c);
      }
      total += p[j] = std::exp(score / std::sqrt(static_cast<double>(size)));
    }
    for (std::int64_t c = head * size; c < (head + 1) * size; ++c) {
      double context = 0;
      for (std::size_t j = 0; j < p.size(); ++j) {
        context += p[j] / total * project(w.value, w.value_bias, static_cast<std::int64_t>(j), c);
      }
      result += context * w.output.at(c, col);
    }
  }
  return result;
}

constexpr AttentionMatrix kSites[] = {AttentionMatrix::kQuery,  AttentionMatrix::kKey,     AttentionMatrix::kValue,
                                      AttentionMatrix::kScores, AttentionMatrix::kContext, AttentionMatrix::kOutput};

TEST_SUITE("reproductions") {
  TEST_CASE("protected attention is attention") {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const Example<double> example(seed);
      const Attention<double> result = example.run();
      for (const auto& [row, col] : {std::pair{0, 0}, {7, 11}, {19, 23}}) {
        CHECK(result.output.at(row, col) == doctest::Approx(plain(example, row, col)));
      }
    }
  }

  TEST_CASE_TEMPLATE("right attention is left alone", T, float, double) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      Example<T> example(seed);
      const Attention<T> result = example.run();
      CHECK(result.ok());
      for (const SectionReport& section : result.sections) CHECK(section.corrected.empty());
      example.options.checked = {};
      CHECK(example.run().output.values == result.output.values);
    }
  }

  TEST_CASE_TEMPLATE("one extreme error in any of the six products is corrected", T, float, double) {
    constexpr T kErrors[] = {std::numeric_limits<T>::infinity(),
                             -std::numeric_limits<T>::infinity(),
                             std::numeric_limits<T>::quiet_NaN(),
                             T(1e38),
                             T(-2e37),
                             T(1e12)};
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      Example<T> example(seed);
      const Attention<T> right = example.run();
      for (const AttentionMatrix site : kSites) {
        for (const T error : kErrors) {
          Random random(seed);
          bool done = false;
          example.options.computed = [&](AttentionMatrix which, std::int64_t, DenseMatrix<T>& matrix) {
            if (which != site || done) return;
            matrix.at(random.below(matrix.rows), random.below(matrix.cols)) = error;
            done = true;
          };
          const Attention<T> result = example.run();
          CHECK(done);
          CHECK_MESSAGE(result.ok(), "seed ", seed, " site ", static_cast<int>(site), " error ", error);
          const double difference = largest_difference(result.output, right.output);
          CHECK_MESSAGE(difference < (sizeof(T) == 4 ? 1e-3 : 1e-10), "seed ", seed, " site ", static_cast<int>(site),
                        " error ", error, " difference ", difference);
        }
      }
    }
  }

  TEST_CASE("patterns are as the paper says: Q gives a row, K and V a column, the others one element") {
    Example<float> example(3);
    example.options.heads = 1;
    example.options.causal = false;
    const auto pattern = [&](AttentionMatrix site, Section section) {
      example.options.computed = [&](AttentionMatrix which, std::int64_t, DenseMatrix<float>& matrix) {
        if (which == site) matrix.at(5, 3) = std::numeric_limits<float>::infinity();
      };
      return example.run().sections[static_cast<std::size_t>(section)].pattern;
    };
    CHECK(pattern(AttentionMatrix::kQuery, Section::kScores) == Pattern::k1R);
    CHECK(pattern(AttentionMatrix::kKey, Section::kScores) == Pattern::k1C);
    CHECK(pattern(AttentionMatrix::kScores, Section::kScores) == Pattern::k0D);
    CHECK(pattern(AttentionMatrix::kValue, Section::kContext) == Pattern::k1C);
    CHECK(pattern(AttentionMatrix::kContext, Section::kContext) == Pattern::k0D);
    CHECK(pattern(AttentionMatrix::kOutput, Section::kOutput) == Pattern::k0D);
  }

  TEST_CASE("errors in two rows of Q are too many, and said to be") {
    Example<float> example(3);
    example.options.computed = [&](AttentionMatrix which, std::int64_t, DenseMatrix<float>& matrix) {
      if (which == AttentionMatrix::kQuery) matrix.at(5, 3) = matrix.at(9, 3) = std::numeric_limits<float>::quiet_NaN();
    };
    CHECK(!example.run().ok());
  }

  TEST_CASE("an unchecked section lets its error pass") {
    Example<float> example(3);
    example.options.checked = {false, true, true};
    example.options.computed = [&](AttentionMatrix which, std::int64_t, DenseMatrix<float>& matrix) {
      if (which == AttentionMatrix::kScores) matrix.at(5, 3) = std::numeric_limits<float>::quiet_NaN();
    };
    CHECK(std::isnan(example.run().output.at(5, 0)));
  }

  TEST_CASE("shapes that do not chain are named") {
    Example<float> example(3);
    example.options.heads = 7;
    CHECK_THROWS_WITH_AS(example.run(), "attention: 7 heads of an input [20, 24]; heads that divide D were expected",
                         InputError);
    example.options.heads = 2;
    example.weights.key = DenseMatrix<float>(24, 12);
    CHECK_THROWS_WITH_AS(example.run(), "attention: a weight [24, 12]; [24, 24] was expected", InputError);
  }
}

}  // namespace
