// Tests the diagnosis of losses that ranks took over their own parts, and that other errors of a loss do not get it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <random>

#include "support/root_causes.h"
#include "support/trace_builder.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("diagnose");

namespace {

using Numbers = std::vector<double>;

// Values that float32 holds, in [low, high].
Numbers drawn(std::size_t count, std::uint32_t seed, double low, double high) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> value(low, high);
  Numbers numbers(count);
  for (double& number : numbers) number = static_cast<float>(value(random));
  return numbers;
}

// A tensor of the call, placed by what DTensor would say of it.
struct OperandOfLoss {
  std::string name;
  Shape shape;
  Numbers values;
  Dtype dtype = Dtype::kFloat32;
  std::map<std::string, std::size_t> split = {};  // by axis, the dimension that it splits
  Kind kind = Kind::kInput;
};

// The rows of dimension `dim` that rank `at` of `of` holds.
std::pair<std::int64_t, std::int64_t> chunk(std::int64_t extent, std::int64_t of, std::int64_t at) {
  const std::int64_t size = (extent + of - 1) / of;
  return {std::min(extent, size * at), std::min(extent, size * (at + 1))};
}

// Returns what DTensor says of a tensor of this shape.
std::string mapping_of(const Mesh& mesh, const Shape& shape, const std::map<std::string, std::size_t>& split) {
  std::vector<std::string> axes;
  for (const Axis& axis : mesh.axes) {
    const auto dim = split.find(axis.name);
    axes.push_back(
        fmt::format(R"({{"axis": "{}", "size": {}, "placement": {}}})", axis.name, axis.size,
                    dim == split.end() ? R"("replicate")" : fmt::format(R"("shard", "dim": {})", dim->second)));
  }
  if (axes.empty()) return "";
  return fmt::format(R"({{"axes": [{}], "shape": [{}]}})", fmt::join(axes, ", "), fmt::join(shape, ", "));
}

// Returns what `rank` holds of the tensor.
TensorSpec shard_of(const OperandOfLoss& operand, const Mesh& mesh, std::int32_t rank) {
  const Coordinates at = coordinates_of(mesh, rank);
  Shape begin(operand.shape.size()), local = operand.shape;
  for (const auto& [axis, dim] : operand.split) {
    if (mesh.axes.empty()) continue;
    const auto [from, to] = chunk(local[dim], size_of_axis(mesh, axis), at.at(axis));
    begin[dim] += from;
    local[dim] = to - from;
  }
  TensorSpec spec;
  spec.id = {.microbatch = 0, .kind = operand.kind, .name = operand.name};
  spec.dtype = operand.dtype;
  spec.shape = local;
  spec.ranks = {rank};
  spec.mapping = mapping_of(mesh, operand.shape, operand.split);
  spec.values = [operand, begin, local](std::int32_t, std::int64_t i) {
    std::int64_t place = 0, stride = 1;
    for (std::size_t dim = local.size(); dim-- > 0;) {
      place += (begin[dim] + i % local[dim]) * stride;
      stride *= operand.shape[dim];
      i /= local[dim];
    }
    return operand.values[static_cast<std::size_t>(place)];
  };
  return spec;
}

// A loss of the reference, and where the candidate's ranks hold its operands.
struct Case {
  std::vector<OperandOfLoss> operands;
  double right = 0;
  std::string axes = "dp=2";
  std::string output = "loss";
  double allowed = 1e-6;
  bool rewritten = false;
};

Trace trace_of(const Case& one, const std::string& axes, const Numbers& values) {
  TraceBuilder builder;
  builder.axes(axes).run_id(axes + "-run");
  const std::int32_t ranks = axes.empty() ? 1 : ranks_of_mesh(axes);
  const Mesh mesh = parse_mesh(axes, ranks, "test");
  for (const OperandOfLoss& operand : one.operands) {
    for (std::int32_t rank = 0; rank < ranks; ++rank) builder.tensor(shard_of(operand, mesh, rank));
  }
  TensorSpec output;
  output.id = {.microbatch = 0, .kind = Kind::kOutput, .name = one.output};
  output.mapping = mapping_of(mesh, {}, {});
  output.values = [values](std::int32_t rank, std::int64_t) {
    return values[values.size() == 1 ? 0 : static_cast<std::size_t>(rank)];
  };
  builder.tensor(output);
  return builder.read();
}

// The candidate's loss is `values`: one value, or one for each rank. Its operands are those of `own`, where given.
std::vector<RootCause> roots_where(const Case& one, const Numbers& values, const Case* own = nullptr) {
  const Trace a = trace_of(one, "", {one.right});
  const Trace b = trace_of(own == nullptr ? one : *own, one.axes, values);
  return roots_between(a, b, "", allowing(one.allowed), one.rewritten);
}

// Checks what is said of a candidate whose loss is `values`.
void check_says(const Case& one, const Numbers& values, Cause cause, const std::string& words) {
  const std::vector<RootCause> roots = roots_where(one, values);
  REQUIRE(roots.size() == 1);
  CHECK_MESSAGE(roots[0].diagnosis == cause, roots[0].sentence);
  CHECK_MESSAGE(has(roots[0].sentence, words), roots[0].sentence);
}

double mean_of(const Numbers& terms, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += terms[i];
  return sum / static_cast<double>(end - begin);
}

// Five rows of four elements, of which rank 0 holds three rows and rank 1 two.
Case of_elements(const Numbers& prediction, const Numbers& target, double right) {
  return {.operands = {{"loss:0", {5, 4}, prediction, Dtype::kFloat32, {{"dp", 0}}},
                       {"loss:1", {5, 4}, target, Dtype::kFloat32, {{"dp", 0}}}},
          .right = right};
}

// The cross-entropy of each row of scores [rows, classes]; NaN where the label is ignored.
Numbers cross_entropies(const Numbers& scores, std::size_t classes, const Numbers& labels) {
  Numbers terms;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    double total = 0;
    for (std::size_t k = 0; k < classes; ++k) total += std::exp(scores[row * classes + k]);
    const bool is_ignored = labels[row] == -100;
    const double score = is_ignored ? NAN : scores[row * classes + static_cast<std::size_t>(labels[row])];
    terms.push_back(std::log(total) - score);
  }
  return terms;
}

// The mean of what counts among the terms.
double mean_of_counted(const Numbers& terms, std::size_t begin, std::size_t end) {
  Numbers counted;
  for (std::size_t i = begin; i < end; ++i) {
    if (!std::isnan(terms[i])) counted.push_back(terms[i]);
  }
  return mean_of(counted, 0, counted.size());
}

const Numbers kLabels = {-100, -100, 0, 2, 3, 0};  // one on rank 0, three on rank 1

Case of_labels(const Numbers& scores, const Numbers& labels, double right) {
  return {.operands = {{"loss:0", {6, 4}, scores, Dtype::kFloat32, {{"dp", 0}}},
                       {"loss:1", {6}, labels, Dtype::kInt64, {{"dp", 0}}}},
          .right = right};
}

}  // namespace

TEST_CASE("the mean of ranks' means is named, of each of the usual losses") {
  const std::array<double (*)(double, double), 5> functions = {
      [](double x, double y) { return std::pow(x - y, 2); }, [](double x, double y) { return std::abs(x - y); },
      [](double x, double y) { return std::abs(x - y) < 1 ? std::pow(x - y, 2) / 2 : std::abs(x - y) - 0.5; },
      [](double x, double y) {
        return -y * std::log(1 / (1 + std::exp(-x))) - (1 - y) * std::log(1 / (1 + std::exp(x)));
      },
      [](double x, double y) { return -y * std::log(x) - (1 - y) * std::log(1 - x); }};
  for (std::size_t which = 0; which < functions.size(); ++which) {
    CAPTURE(which);
    const bool is_probability = which == 4;
    const Numbers prediction = drawn(20, 1, is_probability ? 0.1 : -3, is_probability ? 0.9 : 3),
                  target = drawn(20, 2, 0, 1);
    Numbers terms;
    for (std::size_t i = 0; i < 20; ++i) terms.push_back(functions[which](prediction[i], target[i]));
    const Case one = of_elements(prediction, target, mean_of(terms, 0, 20));
    const double of_means = (mean_of(terms, 0, 12) + mean_of(terms, 12, 20)) / 2;
    CHECK(roots_where(one, {one.right}).empty());
    check_says(one, {of_means}, Cause::kMeanOfMeans,
               "it is the mean of the 2 ranks' means, which hold 12 and 8 of the 20 elements: "
               "each weighs the same, whatever it holds");
    check_says(one, {mean_of(terms, 12, 20)}, Cause::kMissingContribution,
               "it is the mean over the part of rank 1 alone, which holds 8 of the 20 elements");
    check_says(one, {2 * one.right}, Cause::kUniformFactor, "2 times the reference's, the size of dp");
    for (const double share : {-1.0, 0.5, 0.9, 1.1, 2.0}) {
      const std::vector<RootCause> roots = roots_where(one, {one.right + share * (of_means - one.right)});
      REQUIRE(roots.size() == 1);
      CHECK_MESSAGE(!roots[0].diagnosis, roots[0].sentence);
    }
  }
}

TEST_CASE("the mean over ranks of means over the labels that each does not ignore") {
  const Numbers scores = drawn(24, 3, -2, 2), terms = cross_entropies(scores, 4, kLabels);
  const Case one = of_labels(scores, kLabels, mean_of_counted(terms, 0, 6));
  const double of_means = (mean_of_counted(terms, 0, 3) + mean_of_counted(terms, 3, 6)) / 2;
  const std::string words = "the mean of the 2 ranks' means, which hold 1 and 3 of the 4 labels that are not ignored";
  CHECK(roots_where(one, {one.right}).empty());
  check_says(one, {of_means}, Cause::kMeanOfMeans, words);
  check_says(one, {mean_of_counted(terms, 0, 3)}, Cause::kMissingContribution,
             "the mean over the part of rank 0 alone, which holds 1 of the 4 labels that are not ignored");

  SUBCASE("given by keyword") {
    Case named = one;
    named.operands[0].name = "loss:input";
    named.operands[1].name = "loss:target";
    check_says(named, {of_means}, Cause::kMeanOfMeans, words);
  }
  SUBCASE("of log-probabilities") {
    Case likelihood = one;
    for (std::size_t row = 0; row < 6; ++row) {
      double total = 0;
      for (std::size_t k = 0; k < 4; ++k) total += std::exp(scores[row * 4 + k]);
      for (std::size_t k = 0; k < 4; ++k) likelihood.operands[0].values[row * 4 + k] -= std::log(total);
    }
    check_says(likelihood, {of_means}, Cause::kMeanOfMeans, words);
  }
  SUBCASE("with the classes before the pixels") {  // [2, 4, 3]: three pixels of two images, an image on each rank
    Case images = one;
    images.operands[0].shape = {2, 4, 3};
    images.operands[1].shape = {2, 3};
    for (std::size_t i = 0; i < 24; ++i) {
      const std::size_t image = i / 12, k = i / 3 % 4, pixel = i % 3;
      images.operands[0].values[i] = scores[(image * 3 + pixel) * 4 + k];
    }
    check_says(images, {of_means}, Cause::kMeanOfMeans, words);
  }
  SUBCASE("that were not averaged yet") {
    check_says(one, {mean_of_counted(terms, 0, 3), mean_of_counted(terms, 3, 6)}, Cause::kMissingContribution,
               "the copy of rank 0: it is the mean over the part of rank 0 alone");
  }
  SUBCASE("of operands that nobody recorded") {
    for (const std::size_t operand : {0, 1}) {
      Case unknown = one;
      unknown.operands.erase(unknown.operands.begin() + static_cast<std::ptrdiff_t>(operand));
      const std::vector<RootCause> roots = roots_where(unknown, {of_means});
      REQUIRE(roots.size() == 1);
      CHECK_MESSAGE(!roots[0].diagnosis, roots[0].sentence);
    }
  }
  SUBCASE("of another loss") {  // with smoothed labels, say
    Case other = one;
    other.right *= 1.05;
    const std::vector<RootCause> roots = roots_where(other, {of_means});
    REQUIRE(roots.size() == 1);
    CHECK_MESSAGE(!roots[0].diagnosis, roots[0].sentence);
  }
}

TEST_CASE("the mean of ranks' means is that of the candidate's own scores, which rounding has moved") {
  const Numbers scores = drawn(24, 3, -2, 2), noise = drawn(24, 4, -0.01, 0.01);
  Case one = of_labels(scores, kLabels, mean_of_counted(cross_entropies(scores, 4, kLabels), 0, 6));
  one.allowed = 0.02;
  Case own = one;
  for (std::size_t i = 0; i < 24; ++i) own.operands[0].values[i] = static_cast<float>(scores[i] + noise[i]);
  CHECK(roots_where(one, {mean_of_counted(cross_entropies(own.operands[0].values, 4, kLabels), 0, 6)}, &own).empty());
  for (const bool rewritten : {false, true}) {  // then with the reference's scores, which are not those recorded
    CAPTURE(rewritten);
    one.rewritten = rewritten;
    const Numbers terms = cross_entropies((rewritten ? one : own).operands[0].values, 4, kLabels);
    const std::vector<RootCause> roots =
        roots_where(one, {(mean_of_counted(terms, 0, 3) + mean_of_counted(terms, 3, 6)) / 2}, &own);
    REQUIRE(roots.size() == 1);
    CHECK_MESSAGE(roots[0].diagnosis == Cause::kMeanOfMeans, roots[0].sentence);
    CHECK(roots[0].residual < 1e-6);
  }
}

TEST_CASE("the gradient of a mean of ranks' means, also where the mean itself is near enough") {
  const Numbers scores = drawn(24, 3, -2, 2), gradient = drawn(24, 8, -1, 1);
  Case one = of_labels(scores, kLabels, mean_of_counted(cross_entropies(scores, 4, kLabels), 0, 6));
  one.operands.push_back({"loss:0", {6, 4}, gradient, Dtype::kFloat32, {{"dp", 0}}, Kind::kGradInput});
  const auto root_with = [&](double on_rank_0, double on_rank_1) {
    Case own = one;
    for (std::size_t i = 0; i < 24; ++i) own.operands.back().values[i] *= i < 12 ? on_rank_0 : on_rank_1;
    const std::vector<RootCause> roots = roots_where(one, {one.right}, &own);
    REQUIRE(roots.size() == 1);
    return roots[0];
  };
  const RootCause named = root_with(4.0 / 2 / 1, 4.0 / 2 / 3);
  CHECK(named.diagnosis == Cause::kMeanOfMeans);
  CHECK_MESSAGE(has(named.sentence,
                    "it is the gradient of the mean of the 2 ranks' means, which hold 1 and 3 of the 4 "
                    "labels that are not ignored"),
                named.sentence);
  CHECK(root_with(2, 2).diagnosis == Cause::kUniformFactor);
  // Of labels on the other ranks it is not.
  CHECK(has(root_with(4.0 / 2 / 3, 4.0 / 2 / 1).sentence, "one over these numbers averages 1"));
  CHECK(root_with(2, 1).diagnosis != Cause::kMeanOfMeans);
  one.right *= 1.05;  // another loss
  CHECK(has(root_with(4.0 / 2 / 1, 4.0 / 2 / 3).sentence, "one over these numbers averages 1"));
}

TEST_CASE("of many ranks, the fewest and the most that one holds are said") {
  const Numbers prediction = drawn(68, 1, -3, 3), target = drawn(68, 2, 0, 1);
  Numbers terms;
  for (std::size_t i = 0; i < 68; ++i) terms.push_back(std::abs(prediction[i] - target[i]));
  Case one = of_elements(prediction, target, mean_of(terms, 0, 68));
  for (OperandOfLoss& operand : one.operands) operand.shape = {17, 4};
  one.axes = "dp=9";
  double of_means = mean_of(terms, 64, 68) / 9;
  for (std::size_t rank = 0; rank < 8; ++rank) of_means += mean_of(terms, 8 * rank, 8 * rank + 8) / 9;
  check_says(one, {of_means}, Cause::kMeanOfMeans,
             "the mean of the 9 ranks' means, which hold 4 to 8 of the 68 elements");
}

TEST_CASE("a rank that ignores all of its labels has no mean") {
  const Numbers labels = {-100, -100, -100, 2, 3, 0}, scores = drawn(24, 3, -2, 2);
  const Case one = of_labels(scores, labels, mean_of_counted(cross_entropies(scores, 4, labels), 0, 6));
  check_says(one, {NAN}, Cause::kNotFinite,
             "though all that it was computed from is: rank 0 holds none of the 3 labels that are not ignored, and a "
             "mean of none is NaN");
  const Case all_count = of_labels(scores, kLabels, mean_of_counted(cross_entropies(scores, 4, kLabels), 0, 6));
  const std::vector<RootCause> roots = roots_where(all_count, {NAN});
  REQUIRE(roots.size() == 1);
  CHECK_MESSAGE(has(roots[0].sentence, "though all that it was computed from is."), roots[0].sentence);
}

TEST_CASE("a model's own loss, whose label of a token is the next one") {
  // Four sequences of three tokens, two of them on each rank; the label of a first token counts for nothing.
  const Numbers scores = drawn(48, 5, -2, 2), labels = {1, 2, -100, 0, -100, -100, 3, 2, 1, 0, 1, 3};
  Numbers next(12, -100);
  for (std::size_t i = 0; i < 12; ++i) {
    if (i % 3 < 2) next[i] = labels[i + 1];
  }
  const Numbers terms = cross_entropies(scores, 4, next);
  Case one{.operands = {{"(model):input_ids", {4, 3}, labels, Dtype::kInt64, {{"dp", 0}}},
                        {"(model):labels", {4, 3}, labels, Dtype::kInt64, {{"dp", 0}}},
                        {"(model):logits", {4, 3, 4}, scores, Dtype::kFloat32, {{"dp", 0}}, Kind::kOutput}},
           .right = mean_of_counted(terms, 0, 12),
           .output = "(model):loss"};
  check_says(one, {(mean_of_counted(terms, 0, 6) + mean_of_counted(terms, 6, 12)) / 2}, Cause::kMeanOfMeans,
             "the mean of the 2 ranks' means, which hold 1 and 4 of the 5 labels that are not ignored");

  Case own = one;
  for (Case* side : {&one, &own}) {
    side->operands.push_back(
        {"(model):logits", {4, 3, 4}, drawn(48, 8, -1, 1), Dtype::kFloat32, {{"dp", 0}}, Kind::kGradOutput});
  }
  for (std::size_t i = 0; i < 48; ++i) own.operands.back().values[i] *= 5.0 / 2 / (i < 24 ? 1 : 4);
  const std::vector<RootCause> roots = roots_where(one, {one.right}, &own);
  REQUIRE(roots.size() == 1);
  CHECK_MESSAGE(has(roots[0].sentence, "the gradient of the mean of the 2 ranks' means, which hold 1 and 4 of the 5"),
                roots[0].sentence);
}

TEST_CASE("means along one of two axes, and ranks that share a row") {
  // Two sequences, one of each rank of dp, of four tokens, two of each rank of cp.
  const Numbers scores = drawn(32, 6, -2, 2), labels = {-100, 1, 2, 3, -100, -100, 1, 0};
  const Numbers terms = cross_entropies(scores, 4, labels);
  const auto mean = [&](const std::vector<std::size_t>& places) {
    Numbers chosen;
    for (const std::size_t place : places) chosen.push_back(terms[place]);
    return mean_of_counted(chosen, 0, chosen.size());
  };
  Case one{.operands = {{"loss:0", {2, 4, 4}, scores, Dtype::kFloat32, {{"dp", 0}, {"cp", 1}}},
                        {"loss:1", {2, 4}, labels, Dtype::kInt64, {{"dp", 0}, {"cp", 1}}}},
           .right = mean_of_counted(terms, 0, 8),
           .axes = "cp=2,dp=2"};
  const double along_cp = (mean({0, 1, 4, 5}) + mean({2, 3, 6, 7})) / 2;
  const double along_dp = (mean({0, 1, 2, 3}) + mean({4, 5, 6, 7})) / 2;
  CHECK(roots_where(one, {one.right}).empty());
  check_says(one, {along_cp}, Cause::kMeanOfMeans,
             "the means of the 2 ranks of cp, which hold 1 and 4 of the 5 labels");
  check_says(one, {along_dp}, Cause::kMeanOfMeans,
             "the means of the 2 ranks of dp, which hold 3 and 2 of the 5 labels");

  one.axes = "tp=2,cp=2";  // now the classes lie on the ranks of tp, and all of them hold the labels
  one.operands[0].split = {{"tp", 2}, {"cp", 1}};
  one.operands[1].split = {};
  check_says(one, {along_cp}, Cause::kMeanOfMeans,
             "the means of the 2 ranks of cp, which hold 1 and 4 of the 5 labels");
}

TEST_CASE("the mean of four ranks' means, on two axes") {
  const Numbers scores = drawn(32, 7, -2, 2), labels = {-100, 1, 2, 3, 2, 3, -100, 0};
  const Numbers terms = cross_entropies(scores, 4, labels);
  double of_means = 0;
  for (const std::size_t at : {0, 2, 4, 6}) of_means += mean_of_counted(terms, at, at + 2) / 4;
  const Case one{.operands = {{"loss:0", {2, 4, 4}, scores, Dtype::kFloat32, {{"dp", 0}, {"cp", 1}}},
                              {"loss:1", {2, 4}, labels, Dtype::kInt64, {{"dp", 0}, {"cp", 1}}}},
                 .right = mean_of_counted(terms, 0, 8),
                 .axes = "cp=2,dp=2"};
  check_says(one, {of_means}, Cause::kMeanOfMeans,
             "the mean of the 4 ranks' means, which hold 1, 2, 2 and 1 of the 6 labels that are not ignored");
}

TEST_CASE("a sum over one rank's part, and nothing that would be a mean") {
  const Numbers prediction = drawn(20, 1, -3, 3), target = drawn(20, 2, 0, 1);
  Numbers terms;
  for (std::size_t i = 0; i < 20; ++i) terms.push_back(std::abs(prediction[i] - target[i]));
  const Case one = of_elements(prediction, target, 20 * mean_of(terms, 0, 20));
  check_says(one, {8 * mean_of(terms, 12, 20)}, Cause::kMissingContribution, "the sum over the part of rank 1 alone");
  const std::vector<RootCause> roots = roots_where(one, {(mean_of(terms, 0, 12) + mean_of(terms, 12, 20)) / 2});
  REQUIRE(roots.size() == 1);
  CHECK_MESSAGE(!roots[0].diagnosis, roots[0].sentence);
}

TEST_CASE("a loss that is wrong by chance is seldom near what ranks' parts make of it") {
  std::mt19937 random(11);
  std::size_t named = 0;
  for (std::uint32_t round = 0; round < 200; ++round) {
    const Numbers prediction = drawn(64, 100 + round, -3, 3), target = drawn(64, 400 + round, 0, 1);
    Numbers terms;
    for (std::size_t i = 0; i < 64; ++i) terms.push_back(std::pow(prediction[i] - target[i], 2));
    Case one = of_elements(prediction, target, mean_of(terms, 0, 64));
    one.axes = "dp=8";
    for (OperandOfLoss& operand : one.operands) operand.shape = {16, 4};
    const double error = std::uniform_real_distribution<double>(-0.3, 0.3)(random);
    const std::vector<RootCause> roots = roots_where(one, {one.right * (1 + error)});
    named += !roots.empty() && roots[0].diagnosis.has_value();
  }
  CHECK(named <= 4);
}

TEST_SUITE_END();
