// A norm over the last dimension whose ranks each take the statistics of their own part of it.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "diagnose/root_causes.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

constexpr std::size_t kNormRows = 4, kNormWidth = 16;

struct Norm {
  bool by_mean = false;
  double eps = 1e-5;
  std::size_t own = kNormWidth;  // how many columns a rank takes the statistics of
};

std::vector<float> numbers_given() {
  std::vector<float> values;
  for (std::size_t i = 0; i < kNormRows * kNormWidth; ++i)
    values.push_back(static_cast<float>(std::sin(3.7 * static_cast<double>(i * i))) + 0.25F);
  return values;
}

std::vector<float> normalised(const Norm& norm, const std::vector<float>& weight) {
  std::vector<float> values = numbers_given();
  for (std::size_t start = 0; start < values.size(); start += norm.own) {
    double mean = 0, square = 0;
    for (std::size_t j = 0; j < norm.own; ++j) {
      mean += values[start + j] / static_cast<double>(norm.own);
      square += values[start + j] * values[start + j] / static_cast<double>(norm.own);
    }
    if (!norm.by_mean) mean = 0;
    for (std::size_t j = 0; j < norm.own; ++j) {
      const double value = (values[start + j] - mean) / std::sqrt(square - mean * mean + norm.eps);
      values[start + j] = static_cast<float>(value) * weight[(start + j) % kNormWidth];
    }
  }
  return values;
}

std::vector<float> columns_of(const std::vector<float>& values, std::size_t rank, std::size_t ranks) {
  const std::size_t own = kNormWidth / ranks;
  std::vector<float> part;
  for (std::size_t row = 0; row * kNormWidth < values.size(); ++row) {
    for (std::size_t j = 0; j < own; ++j) part.push_back(values[row * kNormWidth + rank * own + j]);
  }
  return part;
}

Trace trace_of_norm(const std::string& mesh, std::size_t ranks, const std::vector<float>& output,
                    const std::vector<float>& weight) {
  Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(ranks));
  const auto own = static_cast<std::int64_t>(kNormWidth / ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    add_tensor(trace, rank, tensor_id(Kind::kParam, "norm.weight"), {own}, columns_of(weight, rank, ranks));
    add_tensor(trace, rank, tensor_id(Kind::kInput, "norm", 0), {4, own}, columns_of(numbers_given(), rank, ranks));
    add_tensor(trace, rank, tensor_id(Kind::kOutput, "norm", 0), {4, own}, columns_of(output, rank, ranks));
  }
  return trace;
}

std::string sentence_about_norm(const Norm& norm, const std::vector<float>& wrong) {
  std::vector<float> weight;
  for (std::size_t j = 0; j < kNormWidth; ++j) weight.push_back(1 + 0.1F * static_cast<float>(j));
  const char* rules = "norm: {input: {tp_dim: 1}, output: {tp_dim: 1}}\nnorm.weight: {tp_dim: 0}";
  Norm whole = norm;
  whole.own = kNormWidth;
  const Trace one = trace_of_norm("", 1, normalised(whole, weight), weight);
  const Trace two = trace_of_norm("tp=2", 2, wrong.empty() ? normalised(norm, weight) : wrong, weight);
  Report report = checked(one, two, rules);
  const Alignment reference = align(one, annotations(rules), {}),
                  candidate = align(two, annotations(rules), layout_of(reference));
  add_root_causes(report, {reference, candidate, two.mesh, {}});
  REQUIRE_FALSE(report.explanation.roots.empty());
  return report.explanation.roots[0].sentence;
}

}  // namespace

TEST_SUITE_BEGIN("diagnose");

TEST_CASE("a norm that takes the statistics of each rank's part of a row is told") {
  CHECK(has(sentence_about_norm({.eps = 1e-6, .own = 8}, {}),
            "each rank normalises its 8 of the 16 numbers of a row by the root mean square of these alone"));
  CHECK(has(sentence_about_norm({.by_mean = true, .own = 8}, {}), "by the mean and deviation of these alone"));
  CHECK_FALSE(has(sentence_about_norm({.own = 8}, std::vector<float>(64, 0.5F)), "normalises"));
  CHECK_FALSE(has(sentence_about_norm({.own = 4}, {}), "normalises"));  // of another part than a rank's
}

TEST_SUITE_END();
