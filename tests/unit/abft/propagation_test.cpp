#include "abft/propagation.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "reproductions/attention.h"
#include "reproductions/random.h"

namespace {

using namespace ttrace::abft;
using ttrace::reproductions::AttentionOptions;
using ttrace::reproductions::AttentionWeights;
using ttrace::reproductions::DenseMatrix;
using ttrace::reproductions::Random;
using enum AttentionMatrix;

constexpr std::int64_t kTokens = 8, kWidth = 8;
constexpr double kInf = std::numeric_limits<double>::infinity();

DenseMatrix<double> random_matrix(std::int64_t rows, std::int64_t cols, Random& random) {
  DenseMatrix<double> matrix(rows, cols);
  for (double& value : matrix.values) value = random.normal();
  return matrix;
}

// Returns what is extreme in one head of attention, with `fault` in one element of `where` as it is computed. Where the
// matrix is `recorded` before, it is seen without the fault.
HeadExtremes extremes_with(AttentionMatrix where, double fault, bool recorded = false) {
  Random random(7);
  const DenseMatrix<double> x = random_matrix(kTokens, kWidth, random);
  AttentionWeights<double> weights;
  for (DenseMatrix<double>* weight : {&weights.query, &weights.key, &weights.value, &weights.output}) {
    *weight = random_matrix(kWidth, kWidth, random);
  }
  HeadExtremes extremes;
  AttentionOptions<double> options;
  options.checked = {false, false, false};
  options.computed = [&](AttentionMatrix matrix, std::int64_t, DenseMatrix<double>& values) {
    if (matrix == kOutput) return;
    const auto view = [&] {
      return row_major(values.values.data(), ttrace::Dtype::kFloat64, values.rows, values.cols);
    };
    if (matrix == where && recorded) extremes[static_cast<std::size_t>(matrix)] = extremes_in(view());
    if (matrix == where) values.at(3, 2) = fault;
    if (matrix != where || !recorded) extremes[static_cast<std::size_t>(matrix)] = extremes_in(view());
  };
  attention(x, weights, options);
  return extremes;
}

Pattern pattern_in(const HeadExtremes& extremes, AttentionMatrix matrix) {
  return extremes[static_cast<std::size_t>(matrix)].pattern;
}

TEST_SUITE("abft") {
  TEST_CASE("extreme values spread through attention as ATTNChecker's Table 1 says") {
    for (const double fault : {kInf, std::nan("")}) {
      const HeadExtremes of_query = extremes_with(kQuery, fault), of_key = extremes_with(kKey, fault);
      const HeadExtremes of_value = extremes_with(kValue, fault), of_scores = extremes_with(kScores, fault);
      CHECK(pattern_in(of_query, kScores) == Pattern::k1R);
      CHECK(pattern_in(of_query, kContext) == Pattern::k1R);
      CHECK(pattern_in(of_key, kScores) == Pattern::k1C);
      CHECK(pattern_in(of_key, kContext) == Pattern::k2D);
      CHECK(pattern_in(of_value, kScores) == Pattern::kNone);
      CHECK(pattern_in(of_value, kContext) == Pattern::k1C);
      CHECK(pattern_in(of_scores, kProbabilities) == Pattern::k1R);
      CHECK(pattern_in(of_scores, kContext) == Pattern::k1R);
    }
  }

  TEST_CASE("where a fault struck is told from what has become of it") {
    for (const double fault : {kInf, -kInf, std::nan(""), 1e30}) {
      for (const AttentionMatrix matrix : {kQuery, kKey, kValue, kScores, kContext}) {
        const bool hidden_by_the_softmax = matrix == kScores && fault == -kInf;
        const Strike recorded = find_strike(extremes_with(matrix, fault));
        CHECK(recorded.where == Strike::Where::kHere);
        CHECK(recorded.matrix == matrix);
        if (matrix == kContext || hidden_by_the_softmax) continue;
        if (matrix == kScores && fault == 1e30) continue;  // its probabilities are 0 and 1
        const Strike on_its_way = find_strike(extremes_with(matrix, fault, true));
        CHECK(on_its_way.where == Strike::Where::kInFlight);
        CHECK(on_its_way.matrix == matrix);
      }
    }
    CHECK(find_strike({}).where == Strike::Where::kNowhere);
  }

  TEST_CASE("what came in with queries and keys is not blamed on attention") {
    HeadExtremes extremes = extremes_with(kQuery, kInf);
    extremes[static_cast<std::size_t>(kKey)] = extremes[static_cast<std::size_t>(kQuery)];
    CHECK(find_strike(extremes).where == Strike::Where::kBefore);
  }
}

}  // namespace
