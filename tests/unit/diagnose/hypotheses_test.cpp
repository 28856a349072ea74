// Tests the diagnoses of mistakes over several ranks, and that other errors get none of them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "diagnose/hypothesis.h"
#include "support/matrices.h"
#include "support/root_causes.h"
#include "support/trace_builder.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("diagnose");

namespace {

constexpr double kAllowed = 0.02;

using Elements = std::vector<double>;

// Returns random values in [-size, size].
Elements random_elements(std::int64_t count, std::uint32_t seed, double size = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> value(-size, size);
  Elements elements(static_cast<std::size_t>(count));
  for (double& element : elements) element = value(random);
  return elements;
}

struct RankTensor {
  Kind kind;
  std::string name;
  std::int32_t microbatch;
  Shape shape;                 // of a rank's shard
  std::vector<Elements> held;  // one for each rank, or one that all ranks hold
  std::int32_t iteration = 0;
};

Trace trace_of(const std::string& axes, const std::vector<RankTensor>& tensors) {
  TraceBuilder builder;
  builder.axes(axes).run_id(axes + "-run");
  for (const RankTensor& tensor : tensors) {
    TensorSpec spec;
    spec.id = {
        .iteration = tensor.iteration, .microbatch = tensor.microbatch, .kind = tensor.kind, .name = tensor.name};
    spec.shape = tensor.shape;
    spec.values = [held = tensor.held](std::int32_t rank, std::int64_t i) {
      return held[held.size() == 1 ? 0 : static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)];
    };
    builder.tensor(spec);
  }
  return builder.read();
}

std::vector<RootCause> all_roots(const std::vector<RankTensor>& reference, const std::string& axes,
                                 const std::vector<RankTensor>& candidate, const std::string& text = "",
                                 double allowed = kAllowed) {
  ToleranceFile tolerance = allowing(allowed);
  tolerance.overrides.push_back({"quiet.**", {}, 5, "zero but for rounding", 0});
  std::vector<RootCause> roots = roots_between(trace_of("", reference), trace_of(axes, candidate), text, tolerance);
  REQUIRE(roots.size() >= 1);
  return roots;
}

RootCause first_root(const std::vector<RankTensor>& reference, const std::string& axes,
                     const std::vector<RankTensor>& candidate, const std::string& text = "") {
  return all_roots(reference, axes, candidate, text)[0];
}

bool says(const RootCause& root, const std::string& words) { return root.sentence.find(words) != std::string::npos; }

// [a, b, inner] as [b, a, inner].
Elements swapped(const Elements& values, std::int64_t a, std::int64_t b, std::int64_t inner) {
  Elements result(values.size());
  for (std::int64_t i = 0; i < a * b * inner; ++i) {
    const std::int64_t x = i / inner / b, y = i / inner % b;
    result[static_cast<std::size_t>((y * a + x) * inner + i % inner)] = values[static_cast<std::size_t>(i)];
  }
  return result;
}

}  // namespace

TEST_CASE("a rank's part of a gradient that another rank's term was never added to") {
  constexpr std::int64_t kRows = 8, kWidth = 8;
  const Elements first = random_elements(64, 1), second = random_elements(64, 2);
  Elements mean(64), wrong(64);
  for (std::size_t i = 0; i < 64; ++i) {
    mean[i] = (first[i] + second[i]) / 2;
    wrong[i] = i < 32 ? mean[i] : second[i] / 2;
  }
  const std::vector<RankTensor> reference = {{Kind::kParamGrad, "w", 0, {kRows, kWidth}, {first}},
                                             {Kind::kParamGrad, "w", 1, {kRows, kWidth}, {second}},
                                             {Kind::kMainGrad, "w", kNoMicrobatch, {kRows, kWidth}, {mean}}};
  const std::vector<RankTensor> candidate = {
      {Kind::kParamGrad, "w", 0, {kRows, kWidth}, {first, second}},
      {Kind::kMainGrad, "w", kNoMicrobatch, {4, kWidth}, {rows_of(wrong, kWidth, 0, 4), rows_of(wrong, kWidth, 4, 8)}}};
  const RootCause root = first_root(reference, "dp=2", candidate, "w:\n  main_grad: {dp_dim: 0}\n");
  CHECK(root.diagnosis == Cause::kMissingContribution);
  CHECK_MESSAGE(says(root, "the part of rank 1 lacks the gradient of rank 0"), root.sentence);
}

TEST_CASE("ranks' parts of a gradient, each with its own last micro-batch in place of the other's") {
  std::vector<Elements> terms;
  Elements sum(64), wrong(64), noisy(64);
  std::vector<RankTensor> reference;
  for (std::int32_t microbatch = 0; microbatch < 4; ++microbatch) {
    terms.push_back(random_elements(64, 60 + static_cast<std::uint32_t>(microbatch)));
    reference.push_back({Kind::kParamGrad, "w", microbatch, {8, 8}, {terms.back()}});
  }
  for (std::size_t i = 0; i < 64; ++i) {
    const double before = terms[0][i] + terms[1][i];
    sum[i] = before + terms[2][i] + terms[3][i];
    wrong[i] = before + 2 * (i < 32 ? terms[2][i] : terms[3][i]);
    noisy[i] = before + (i < 32 ? 1.5 * terms[2][i] : 1.5 * terms[3][i]);
  }
  reference.push_back({Kind::kMainGrad, "w", kNoMicrobatch, {8, 8}, {sum}});
  const auto root_of = [&](const Elements& of_ranks) {
    std::vector<RankTensor> candidate;
    for (std::int32_t microbatch = 0; microbatch < 2; ++microbatch) {  // rank r has those of r, and of r + 2
      const auto first = static_cast<std::size_t>(2 * microbatch);
      candidate.push_back({Kind::kParamGrad, "w", microbatch, {8, 8}, {terms[first], terms[first + 1]}});
    }
    candidate.push_back(
        {Kind::kMainGrad, "w", kNoMicrobatch, {4, 8}, {rows_of(of_ranks, 8, 0, 4), rows_of(of_ranks, 8, 4, 8)}});
    return first_root(reference, "dp=2", candidate, "w:\n  main_grad: {dp_dim: 0}\n");
  };
  const RootCause root = root_of(wrong);
  CHECK(root.diagnosis == Cause::kMissingContribution);
  CHECK_MESSAGE(says(root,
                     "in the part of rank 0 the sum lacks the gradient of micro-batch 3, and has the gradient of "
                     "micro-batch 2 twice; in the part of rank 1 the sum lacks the gradient of micro-batch 2, and has "
                     "the gradient of micro-batch 3 twice"),
                root.sentence);
  CHECK(root_of(noisy).diagnosis != Cause::kMissingContribution);
}

TEST_CASE("gradients that were added onto what the iteration before had left") {
  std::vector<RankTensor> reference;
  std::vector<Elements> sums(2, Elements(64));
  Elements wrong(64), noise = random_elements(64, 90, 3);
  for (std::int32_t iteration = 0; iteration < 2; ++iteration) {
    for (std::int32_t microbatch = 0; microbatch < 4; ++microbatch) {
      const Elements term = random_elements(64, 40 + static_cast<std::uint32_t>(4 * iteration + microbatch));
      for (std::size_t i = 0; i < 64; ++i) {
        sums[static_cast<std::size_t>(iteration)][i] += term[i];
        wrong[i] += term[i] * (iteration == 1 ? 1 : microbatch % 2 == 1 ? 1.5 : 0);
      }
      reference.push_back({Kind::kParamGrad, "w", microbatch, {8, 8}, {term}, iteration});
    }
  }
  std::vector<RankTensor> candidate = reference, noisy = reference;
  for (std::int32_t iteration = 0; iteration < 2; ++iteration) {
    const Elements& sum = sums[static_cast<std::size_t>(iteration)];
    reference.push_back({Kind::kMainGrad, "w", kNoMicrobatch, {8, 8}, {sum}, iteration});
    candidate.push_back({Kind::kMainGrad, "w", kNoMicrobatch, {8, 8}, {iteration == 1 ? wrong : sum}, iteration});
    noisy.push_back({Kind::kMainGrad, "w", kNoMicrobatch, {8, 8}, {iteration == 1 ? noise : sum}, iteration});
  }
  const RootCause root = first_root(reference, "", candidate);
  CHECK(root.diagnosis == Cause::kLeftOver);
  CHECK_MESSAGE(says(root,
                     "what iteration 0 had left: in the part of rank 0, 1.5 times the gradients of its "
                     "micro-batches 1, 3"),
                root.sentence);
  CHECK(first_root(reference, "", noisy).diagnosis != Cause::kLeftOver);
}

TEST_CASE("the gradient of the iteration before that nobody has zeroed, as it was or clipped") {
  // Of a light iteration, which has no terms.
  const Elements before = random_elements(64, 60), right = random_elements(64, 61),
                 noise = random_elements(64, 62, 0.2);
  const auto root_of = [&](double left, double own, double noisy, std::int64_t size) {
    std::vector<RankTensor> reference, candidate;
    const auto cut = [&](const Elements& values) { return Elements(values.begin(), values.begin() + size); };
    Elements wrong = cut(right);
    for (std::size_t i = 0; i < wrong.size(); ++i) wrong[i] = own * right[i] + left * before[i] + noisy * noise[i];
    for (std::vector<RankTensor>* side : {&reference, &candidate}) {
      side->push_back({Kind::kMainGrad, "w", kNoMicrobatch, {size}, {cut(before)}, 0});
      side->push_back({Kind::kMainGrad, "w", kNoMicrobatch, {size}, {side == &reference ? cut(right) : wrong}, 1});
    }
    return first_root(reference, "", candidate);
  };
  for (const std::int64_t size : {64, 8}) {
    const RootCause whole = root_of(1, 1, 0, size);
    CHECK(whole.diagnosis == Cause::kLeftOver);
    CHECK_MESSAGE(says(whole, "the gradient of iteration 0 is still in it (is there a zero_grad before the backward?)"),
                  whole.sentence);
  }
  const RootCause left = root_of(0.5, 1, 0, 64), clipped = root_of(0.25, 0.75, 0, 64);
  CHECK_MESSAGE(says(left, "0.5 times the gradient of iteration 0 is still in it (is there"), left.sentence);
  CHECK_MESSAGE(
      says(clipped, "0.25 times the gradient of iteration 0 is still in it, beside 0.75 times the reference's"),
      clipped.sentence);
  CHECK(root_of(0.25, 0.75, 1, 64).diagnosis != Cause::kLeftOver);
  CHECK(root_of(0, 0.75, 0.2, 64).diagnosis != Cause::kLeftOver);
  CHECK(root_of(-0.5, 1, 0, 64).diagnosis != Cause::kLeftOver);
  CHECK(root_of(0.5, 1, 0, 8).diagnosis != Cause::kLeftOver);  // fitted to few values
}

TEST_CASE("the gradient of a backward before that the reference zeroes within the iteration") {
  for (const std::int64_t size : {64, 8}) {
    std::vector<Elements> terms;
    std::vector<RankTensor> reference;
    for (std::int32_t microbatch = 0; microbatch < 3; ++microbatch) {
      terms.push_back(random_elements(size, 70 + static_cast<std::uint32_t>(microbatch)));
      reference.push_back({Kind::kParamGrad, "w", microbatch, {size}, {terms.back()}});
    }
    Elements sum = terms[2];
    std::vector<RankTensor> candidate = reference, noisy = reference;
    reference.push_back({Kind::kMainGrad, "w", kNoMicrobatch, {size}, {sum}});
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += terms[1][i];
    candidate.push_back({Kind::kMainGrad, "w", kNoMicrobatch, {size}, {sum}});
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += 0.5 * terms[0][i];
    noisy.push_back({Kind::kMainGrad, "w", kNoMicrobatch, {size}, {sum}});
    const RootCause root = first_root(reference, "", candidate);
    CHECK(root.diagnosis == Cause::kLeftOver);
    CHECK_MESSAGE(says(root,
                       "the gradient of micro-batch 1 is still in it, which the reference leaves out (is there a "
                       "zero_grad before the backward of micro-batch 2?)"),
                  root.sentence);
    CHECK(first_root(reference, "", noisy).diagnosis != Cause::kLeftOver);
  }
}

TEST_CASE("what the candidate does not update of a model that no optimizer updates is said so, in one sentence") {
  const Elements value = random_elements(16, 80), other = random_elements(16, 81);
  std::vector<RankTensor> reference, later, never = {{Kind::kOutput, "fc", 0, {16}, {other}, 1}};
  for (std::int32_t iteration = 0; iteration < 2; ++iteration) {
    for (const char* name : {"teacher.weight", "teacher.bias"}) {
      reference.push_back({Kind::kBufferAfter, name, kNoMicrobatch, {16}, {value}, iteration});
      if (iteration == 1) later.push_back(reference.back());
    }
  }
  reference.push_back({Kind::kOutput, "fc", 0, {16}, {value}, 1});
  later.push_back(never[0]);
  const std::vector<RootCause> roots = all_roots(reference, "", later);
  REQUIRE(roots.size() == 1);
  CHECK(roots[0].diagnosis == Cause::kNeverUpdated);
  CHECK(roots[0].sentence ==
        "teacher.weight, buffer_after: not updated by the candidate; the reference updates it; the same in 1 more "
        "tensor: teacher.bias; 1 later difference follows from it.");
  const RootCause root = first_root(reference, "", never);
  CHECK_MESSAGE(says(root, "not updated by the candidate in any iteration, or not there; the reference updates it"),
                root.sentence);
}

TEST_CASE("a linear whose weight or input counts as zero has its bias left") {
  const Elements bias = random_elements(8, 1), right = random_elements(64, 2);
  Elements alone, noisy = random_elements(64, 3);
  for (std::size_t i = 0; i < 64; ++i) alone.push_back(bias[i % 8]);
  const auto program = [&](const Elements& output) -> std::vector<RankTensor> {
    return {{Kind::kParam, "fc.bias", kNoMicrobatch, {8}, {bias}}, {Kind::kOutput, "fc", 0, {8, 8}, {output}}};
  };
  const RootCause root = first_root(program(right), "", program(alone));
  CHECK(root.diagnosis == Cause::kZero);
  CHECK_MESSAGE(says(root, "every row is the bias alone"), root.sentence);
  CHECK(first_root(program(right), "", program(noisy)).diagnosis != Cause::kZero);
}

TEST_CASE("an exact factor is recognised in large fp32 tensors, where sums are rounded by more than is allowed") {
  constexpr std::int64_t kLarge = (std::int64_t{1} << 20) + 16;
  const Elements right = random_elements(kLarge, 5);
  const auto with_factor = [&](double factor, double noise) {
    Elements wrong = right;
    for (std::size_t i = 0; i < wrong.size(); ++i) {
      wrong[i] = static_cast<float>(static_cast<float>(right[i]) * factor * (1 + (i % 2 == 0 ? noise : -noise)));
    }
    const std::vector<RankTensor> reference = {{Kind::kOutput, "fc", 0, {kLarge}, {right}}};
    return all_roots(reference, "tp=2", {{Kind::kOutput, "fc", 0, {kLarge}, {wrong}}}, "fc: {output: {}}", 1e-7)[0];
  };
  for (const double factor : {0.25, 0.5, 2.0, 3.0}) {
    const RootCause root = with_factor(factor, 0);
    REQUIRE(root.diagnosis == Cause::kUniformFactor);
    CHECK_MESSAGE(says(root, fmt::format("every element is {} times the reference's", factor)), root.sentence);
  }
  CHECK(with_factor(0.5, 0).residual == 0);
  CHECK_FALSE(with_factor(0.5, 1e-5).diagnosis);
}

TEST_CASE("factors with one meaning are one cause, be they fitted to other digits") {
  const Elements a = random_elements(64, 6), b = random_elements(64, 7);
  const auto scaled = [](Elements values, double factor) {
    for (double& value : values) value *= factor;
    return values;
  };
  const auto roots_with = [&](double first, double second) {
    const auto program = [&](const Elements& x, const Elements& y) -> std::vector<RankTensor> {
      return {{Kind::kParamGrad, "x.weight", 0, {64}, {a}},
              {Kind::kParamGrad, "y.weight", 0, {64}, {b}},
              {Kind::kMainGrad, "x.weight", kNoMicrobatch, {64}, {x}},
              {Kind::kMainGrad, "y.weight", kNoMicrobatch, {64}, {y}}};
    };
    return all_roots(program(a, b), "tp=2", program(scaled(a, first), scaled(b, second)));
  };
  REQUIRE(roots_with(2.01, 1.99).size() == 1);
  CHECK_MESSAGE(says(roots_with(2.01, 1.99)[0], "the size of tp; the same in 1 more tensor"),
                roots_with(2.01, 1.99)[0].sentence);
  CHECK(roots_with(2, 3).size() == 2);
}

TEST_CASE("rows of zeros are not the values of a row that happens to be zero") {
  Elements right = random_elements(64, 8), wrong;
  std::fill_n(right.begin(), 8, 0.0);
  wrong = right;
  std::fill(wrong.begin() + 24, wrong.begin() + 40, 0.0);
  const RootCause root =
      first_root({{Kind::kOutput, "fc", 0, {8, 8}, {right}}}, "", {{Kind::kOutput, "fc", 0, {8, 8}, {wrong}}});
  CHECK(root.diagnosis == Cause::kRegion);
  CHECK_MESSAGE(says(root, "zero at 3-4 of dimension 0 only (2 of 8), right elsewhere"), root.sentence);
}

TEST_CASE("rows that are wrong where the parts of two ranks meet are their border") {
  const Elements right = random_elements(96, 8), noise = random_elements(96, 9);
  const auto root_of = [&](std::size_t first_row) {
    Elements wrong = right;
    for (std::size_t i = first_row * 8; i < (first_row + 2) * 8; ++i) wrong[i] += noise[i];
    const auto middle = wrong.begin() + 48;
    return first_root({{Kind::kGradInput, "conv", 0, {12, 8}, {right}}}, "cp=2",
                      {{Kind::kGradInput, "conv", 0, {6, 8}, {{wrong.begin(), middle}, {middle, wrong.end()}}}});
  };
  CHECK_MESSAGE(says(root_of(5),
                     "wrong at 5-6 of dimension 0 only (2 of 12), right elsewhere: the border of the parts "
                     "of ranks 0, 1"),
                root_of(5).sentence);
  CHECK(!says(root_of(4), "border"));
}

TEST_CASE("a gradient of few values lacks a micro-batch where nothing else explains it as nearly") {
  std::vector<RankTensor> reference;
  Elements sum(4), lacking(4);
  for (std::int32_t microbatch = 0; microbatch < 4; ++microbatch) {
    const Elements term = random_elements(4, static_cast<std::uint32_t>(microbatch) + 1);
    reference.push_back({Kind::kParamGrad, "fc.bias", microbatch, {4}, {term}});
    for (std::size_t i = 0; i < 4; ++i) sum[i] += term[i], lacking[i] += microbatch == 2 ? 0 : term[i];
  }
  std::vector<RankTensor> candidate = reference;
  reference.push_back({Kind::kMainGrad, "fc.bias", kNoMicrobatch, {4}, {sum}});
  candidate.push_back({Kind::kMainGrad, "fc.bias", kNoMicrobatch, {4}, {lacking}});
  const RootCause root = first_root(reference, "", candidate);
  CHECK_MESSAGE(says(root, "the sum lacks the gradient of micro-batch 2"), root.sentence);
  candidate.back().held[0][1] *= 1.1;
  CHECK(first_root(reference, "", candidate).diagnosis != Cause::kMissingContribution);
}

TEST_CASE("a gradient that has a micro-batch twice, and one that is another micro-batch's alone") {
  std::vector<RankTensor> reference;
  Elements sum(64), twice(64), alone(64);
  for (std::int32_t microbatch = 0; microbatch < 4; ++microbatch) {
    const Elements term = random_elements(64, 10 + static_cast<std::uint32_t>(microbatch));
    for (std::size_t i = 0; i < 64; ++i) {
      sum[i] += term[i];
      twice[i] += term[i] * (microbatch == 2 ? 2 : 1);
      alone[i] += term[i] * (microbatch == 1 ? 1 : 0);
    }
    reference.push_back({Kind::kParamGrad, "w", microbatch, {8, 8}, {term}});
  }
  std::vector<RankTensor> candidate = reference;
  reference.push_back({Kind::kMainGrad, "w", kNoMicrobatch, {8, 8}, {sum}});
  candidate.push_back({Kind::kMainGrad, "w", kNoMicrobatch, {8, 8}, {twice}});
  const RootCause doubled = first_root(reference, "", candidate);
  CHECK(doubled.diagnosis == Cause::kMissingContribution);
  CHECK_MESSAGE(says(doubled, "has the gradient of micro-batch 2 twice"), doubled.sentence);
  candidate.back().held = {alone};
  CHECK(says(first_root(reference, "", candidate), "has the gradient of micro-batch 1 only"));
}

TEST_CASE("ranks that read each other's part of the input with a scale of their own") {
  constexpr std::int64_t kRows = 8, kIn = 4, kOut = 8;
  const Elements x = random_elements(kRows * kIn, 1), product = random_elements(kRows * kOut, 2);
  const Elements bias = random_elements(kOut, 3);
  Elements y = product, wrong = product;
  for (std::int64_t i = 0; i < kRows * kOut; ++i) {
    const bool late_row = i / kOut >= kRows / 2, late_column = i % kOut >= kOut / 2;
    const auto at = static_cast<std::size_t>(i);
    const double factor = late_row == late_column ? 1 : late_row ? 1.6 : 1 / 1.6;
    wrong[at] = factor * product[at] + bias[static_cast<std::size_t>(i % kOut)];
    y[at] += bias[static_cast<std::size_t>(i % kOut)];
  }
  const std::vector<RankTensor> reference = {{Kind::kParam, "m.bias", kNoMicrobatch, {kOut}, {bias}},
                                             {Kind::kInput, "m", 0, {kRows, kIn}, {x}},
                                             {Kind::kOutput, "m", 0, {kRows, kOut}, {y}}};
  const std::vector<RankTensor> candidate = {
      {Kind::kParam, "m.bias", kNoMicrobatch, {4}, {rows_of(bias, 1, 0, 4), rows_of(bias, 1, 4, 8)}},
      {Kind::kInput, "m", 0, {4, kIn}, {rows_of(x, kIn, 0, 4), rows_of(x, kIn, 4, 8)}},
      {Kind::kOutput, "m", 0, {kRows, 4}, {columns_of(wrong, kOut, 0, 4), columns_of(wrong, kOut, 4, 8)}}};
  const RootCause root = first_root(reference, "tp=2", candidate,
                                    "m.bias: {tp_dim: 0}\nm:\n  input: {tp_dim: 0}\n  output: {tp_dim: 1}\n");
  CHECK(root.diagnosis == Cause::kRankFactor);
  CHECK_MESSAGE(says(root, "1.6 on rank 0 of what it made of rank 1's part of the input"), root.sentence);
  CHECK_MESSAGE(says(root, "each the inverse of the other"), root.sentence);
}

TEST_CASE("main gradients that each rank clips by its own norm have one cause, and others are not called clipped") {
  constexpr std::int64_t kNorm = 16, kRows = 8, kColumns = 4, kHalf = kRows / 2 * kColumns;
  const Elements norm = random_elements(kNorm, 1), split = random_elements(kRows * kColumns, 2);
  const auto square_of = [](const Elements& elements, std::int64_t from, std::int64_t to) {
    double square = 0;
    for (std::int64_t i = from; i < to; ++i)
      square += elements[static_cast<std::size_t>(i)] * elements[static_cast<std::size_t>(i)];
    return square;
  };
  const auto times = [](Elements elements, double factor) {
    for (double& element : elements) element *= factor;
    return elements;
  };
  const double whole = square_of(norm, 0, kNorm) + square_of(split, 0, 2 * kHalf);
  const auto own_factor = [&](std::int64_t rank) {
    return std::sqrt(whole / (square_of(norm, 0, kNorm) + square_of(split, rank * kHalf, (rank + 1) * kHalf)));
  };
  const Elements early = rows_of(split, kColumns, 0, kRows / 2), late = rows_of(split, kColumns, kRows / 2, kRows);
  std::vector<RankTensor> reference = {{Kind::kParamGrad, "norm.weight", 0, {kNorm}, {norm}},
                                       {Kind::kParamGrad, "fc.weight", 0, {kRows, kColumns}, {split}},
                                       {Kind::kMainGrad, "norm.weight", kNoMicrobatch, {kNorm}, {norm}},
                                       {Kind::kMainGrad, "fc.weight", kNoMicrobatch, {kRows, kColumns}, {split}}};
  const auto roots_with = [&](double first, double second, const std::vector<RankTensor>& more = {}) {
    std::vector<RankTensor> candidate = {
        {Kind::kParamGrad, "norm.weight", 0, {kNorm}, {norm}},
        {Kind::kParamGrad, "fc.weight", 0, {kRows / 2, kColumns}, {early, late}},
        {Kind::kMainGrad, "norm.weight", kNoMicrobatch, {kNorm}, {times(norm, first), times(norm, second)}},
        {Kind::kMainGrad,
         "fc.weight",
         kNoMicrobatch,
         {kRows / 2, kColumns},
         {times(early, first), times(late, second)}}};
    candidate.insert(candidate.end(), more.begin(), more.end());
    return all_roots(reference, "tp=2", candidate, "fc.weight: {tp_dim: 0}\n", 1e-6);
  };
  const std::vector<RootCause> clipped = roots_with(own_factor(0), own_factor(1));
  REQUIRE(clipped.size() == 1);
  CHECK(clipped[0].diagnosis == Cause::kRankFactor);
  CHECK(clipped[0].alike.size() == 1);
  CHECK_MESSAGE(
      says(clipped[0],
           fmt::format(
               "in all 2 parameters it is one number a rank times the reference's: {:.4g} on rank 0, {:.4g} on rank 1",
               own_factor(0), own_factor(1))),
      clipped[0].sentence);
  CHECK_MESSAGE(says(clipped[0], "clipped by each rank's own norm"), clipped[0].sentence);
  // The reference's gradients may be recorded before they are clipped.
  const std::vector<RootCause> smaller = roots_with(own_factor(0) / 2, own_factor(1) / 2);
  CHECK_MESSAGE(says(smaller[0], "clipped by each rank's own norm"), smaller[0].sentence);
  const std::vector<RootCause> scaled = roots_with(1.1, 1.3);
  REQUIRE(scaled.size() == 1);
  CHECK_MESSAGE(says(scaled[0], "1.1 on rank 0, 1.3 on rank 1"), scaled[0].sentence);
  CHECK_FALSE(says(scaled[0], "clipped"));
  const Elements rounding = times(random_elements(kNorm, 3), 1e-9);
  const RankTensor quiet = {Kind::kParamGrad, "quiet.bias", 0, {kNorm}, {rounding}};
  reference.push_back(quiet);
  reference.push_back({Kind::kMainGrad, "quiet.bias", kNoMicrobatch, {kNorm}, {rounding}});
  const auto beside_rounding = roots_with(
      1.1, 1.3,
      {quiet, {Kind::kMainGrad, "quiet.bias", kNoMicrobatch, {kNorm}, {times(rounding, 1.2), times(rounding, 1.4)}}});
  REQUIRE(beside_rounding.size() == 1);
  CHECK_MESSAGE(says(beside_rounding[0], "in all 3 parameters it is one number a rank"), beside_rounding[0].sentence);
}

TEST_CASE("a parameter that a step leaves as it was, by what was recorded before the step or after the one before") {
  const Elements first = random_elements(32, 1), second = random_elements(32, 2), third = random_elements(32, 3);
  const auto after = [](std::int32_t iteration, const Elements& values) -> RankTensor {
    return {Kind::kParamAfter, "w", kNoMicrobatch, {4, 8}, {values}, iteration};
  };
  const std::vector<RankTensor> reference = {after(0, first), after(1, second)};
  const RootCause root = first_root(reference, "tp=1", {after(0, first), after(1, first)});
  CHECK(root.diagnosis == Cause::kNeverUpdated);
  CHECK_MESSAGE(says(root, "the parameter is what it was before the step"), root.sentence);
  CHECK(first_root(reference, "tp=1", {after(0, first), after(1, third)}).diagnosis != Cause::kNeverUpdated);
}

TEST_CASE("each rank's part read in another order of its memory") {
  const Elements values = random_elements(8 * 4 * 3, 1);
  const Elements early(values.begin(), values.begin() + 48), late(values.begin() + 48, values.end());
  const std::vector<RankTensor> reference = {{Kind::kOutput, "m", 0, {8, 4, 3}, {values}}};
  // The memory of [4, 4, 3] is the same size when swapped; of [4, 4] nothing else tells it from a transposition.
  const std::vector<RankTensor> candidate = {
      {Kind::kOutput, "m", 0, {4, 4, 3}, {swapped(early, 4, 4, 3), swapped(late, 4, 4, 3)}}};
  const RootCause root = first_root(reference, "tp=2", candidate, "m:\n  output: {tp_dim: 0}\n");
  CHECK(root.diagnosis == Cause::kReinterpreted);
  CHECK_MESSAGE(says(root, "as if dimensions 0 and 1 of each rank's part were swapped in memory"), root.sentence);
}

namespace {

// Computes causal attention of [s, b, heads, d] as it is defined, one element at a time.
constexpr std::int64_t kS = 4, kB = 3, kHeads = 2, kD = 4, kWidth = kHeads * kD;

Elements attention(const Elements& q, const Elements& k, const Elements& v) {
  const auto at = [](std::int64_t s, std::int64_t b, std::int64_t head, std::int64_t d) {
    return static_cast<std::size_t>(((s * kB + b) * kHeads + head) * kD + d);
  };
  Elements out(q.size());
  for (std::int64_t b = 0; b < kB; ++b) {
    for (std::int64_t head = 0; head < kHeads; ++head) {
      for (std::int64_t i = 0; i < kS; ++i) {
        double total = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          double score = 0;
          for (std::int64_t d = 0; d < kD; ++d) score += q[at(i, b, head, d)] * k[at(j, b, head, d)];
          const double weight = std::exp(score / 2);  // sqrt(kD)
          total += weight;
          for (std::int64_t d = 0; d < kD; ++d) out[at(i, b, head, d)] += weight * v[at(j, b, head, d)];
        }
        for (std::int64_t d = 0; d < kD; ++d) out[at(i, b, head, d)] /= total;
      }
    }
  }
  return out;
}

// Computes the gradient of <grad, attention> with respect to the queries, the keys or the values by finite differences.
Elements gradient(std::array<Elements, 3> operands, std::size_t which, const Elements& grad) {
  constexpr double kStep = 1e-5;
  Elements result;
  for (double& element : operands[which]) {
    double difference = 0;
    const double before = element;
    for (const double step : {kStep, -kStep}) {
      element = before + step;
      const Elements out = attention(operands[0], operands[1], operands[2]);
      for (std::size_t i = 0; i < out.size(); ++i) difference += (step > 0 ? 1 : -1) * grad[i] * out[i];
    }
    element = before;
    result.push_back(difference / (2 * kStep));
  }
  return result;
}

}  // namespace

TEST_CASE("an attention's backward that reads its output's gradient in another order of memory") {
  constexpr std::int64_t kCount = kS * kB * kWidth;
  const std::array<Elements, 3> operands = {random_elements(kCount, 1), random_elements(kCount, 2),
                                            random_elements(kCount, 3)};
  const Elements grad = random_elements(kCount, 4), misread = swapped(grad, kB, kS, kWidth);
  const std::vector<std::string> members = {"m:0", "m:1", "m:2"};
  std::vector<RankTensor> common;
  for (std::size_t i = 0; i < 3; ++i)
    common.push_back({Kind::kInput, members[i], 0, {kS, kB, kHeads, kD}, {operands[i]}});
  common.push_back({Kind::kOutput, "m", 0, {kS, kB, kWidth}, {attention(operands[0], operands[1], operands[2])}});
  common.push_back({Kind::kGradOutput, "m", 0, {kS, kB, kWidth}, {grad}});
  for (std::size_t i = 0; i < 3; ++i) {
    std::vector<RankTensor> reference = common, candidate = common;
    const RankTensor right = {Kind::kGradInput, members[i], 0, {kS, kB, kHeads, kD}, {gradient(operands, i, grad)}};
    reference.push_back(right);
    candidate.push_back(right);
    candidate.back().held = {gradient(operands, i, misread)};
    const RootCause root = first_root(reference, "", candidate);
    CHECK_MESSAGE(root.diagnosis == Cause::kReinterpreted, members[i] << root.sentence);
    CHECK_MESSAGE(says(root, "what the attention makes of its output's gradient"), root.sentence);
  }
}

TEST_CASE("permutations that parallel programs make have names") {
  const Elements values = random_elements(16 * 4, 1);
  const auto words = [&](const std::vector<std::int64_t>& blocks) {
    const std::int64_t size = 64 / static_cast<std::int64_t>(blocks.size());
    Elements moved;
    for (const std::int64_t block : blocks) {
      for (std::int64_t i = 0; i < size; ++i) moved.push_back(values[static_cast<std::size_t>(block * size + i)]);
    }
    const RootCause root =
        first_root({{Kind::kOutput, "m", 0, {16, 4}, {values}}}, "", {{Kind::kOutput, "m", 0, {16, 4}, {moved}}});
    CHECK_MESSAGE(root.diagnosis == Cause::kPermutedBlocks, root.sentence);
    return root.sentence;
  };
  CHECK(words({0, 3, 2, 1}).find("blocks 1 and 3 are swapped") != std::string::npos);
  CHECK(words({0, 3, 1, 2}).find("a zigzag split over 2 ranks, not undone") != std::string::npos);
  CHECK(words({0, 2, 3, 1}).find("a zigzag split over 2 ranks, undone where there was none") != std::string::npos);
  CHECK(words({1, 2, 3, 0}).find("rotated by 1") != std::string::npos);
  CHECK(words({0, 4, 1, 5, 2, 6, 3, 7}).find("2 groups of 4 are interleaved") != std::string::npos);
}

TEST_CASE("one rank's copy that is wrong is no mean to be taken") {
  const Elements values = random_elements(64, 1), noise = random_elements(64, 2, 1.5 * kAllowed);
  Elements wrong = values;
  for (std::size_t i = 0; i < 64; ++i) wrong[i] += noise[i];
  const RootCause root = first_root({{Kind::kOutput, "m", 0, {8, 8}, {values}}}, "tp=2",
                                    {{Kind::kOutput, "m", 0, {8, 8}, {values, wrong}}});
  CHECK(root.diagnosis == Cause::kRegion);
  CHECK_MESSAGE(says(root, "wrong in the copy of rank 1 only (1 of 2 copies)"), root.sentence);
}

TEST_CASE("one rank's part that is wrong, and values rounded to eight bits") {
  const Elements values = random_elements(64, 1), noise = random_elements(64, 2, 0.5);
  Elements wrong = values, coarse = values;
  for (std::size_t i = 0; i < 64; ++i) {
    if (i % 8 >= 4) wrong[i] += noise[i];
    int exponent = 0;
    const double mantissa = std::frexp(values[i], &exponent);
    coarse[i] = std::ldexp(std::round(mantissa * 16) / 16, exponent);
  }
  const RootCause part =
      first_root({{Kind::kOutput, "m", 0, {8, 8}, {values}}}, "tp=2",
                 {{Kind::kOutput, "m", 0, {8, 4}, {columns_of(wrong, 8, 0, 4), columns_of(wrong, 8, 4, 8)}}},
                 "m:\n  output: {tp_dim: 1}\n");
  CHECK_MESSAGE(says(part, "wrong in the part of rank 1 only (1 of 2 parts), right elsewhere"), part.sentence);
  const RootCause rounded =
      first_root({{Kind::kOutput, "m", 0, {8, 8}, {values}}}, "", {{Kind::kOutput, "m", 0, {8, 8}, {coarse}}});
  CHECK(rounded.diagnosis == Cause::kCoarserPrecision);
  CHECK_MESSAGE(says(rounded, "float8 e4m3"), rounded.sentence);
}

TEST_CASE("a rank that computed a tensor in several calls is named once") {
  const Finding finding;
  LogicalTensor tensor;
  const Alignment alignment;
  const std::vector<TiedRule> tied;
  const Evidence evidence{alignment, alignment, {}, tied};
  Suspect suspect{finding, tensor, tensor, evidence, random_elements(16, 1), {}, {}, kAllowed, 1};
  suspect.candidate_values = suspect.reference_values;
  for (std::int64_t call = 0; call < 4; ++call) {
    suspect.parts.push_back({0, {4}, {4 * call, 4 * call + 1, 4 * call + 2, 4 * call + 3}});
    if (call >= 2) suspect.candidate_values[static_cast<std::size_t>(4 * call)] += 1;
  }
  const std::optional<Diagnosis> diagnosis = region(suspect);
  REQUIRE(diagnosis.has_value());
  CHECK(diagnosis->what == "wrong in 2 of 4 parts only, those of rank 0, right elsewhere");
}

TEST_CASE("weights near 1 that were rounded to 1 are not said to be of the narrowest dtype") {
  const Elements noise = random_elements(64, 1, 0.06), ones(64, 1.0);
  Elements values(64);
  for (std::size_t i = 0; i < 64; ++i) values[i] = 1 + std::abs(noise[i]);  // half a unit of float8 e4m3 is 0.0625
  const RootCause root =
      first_root({{Kind::kOutput, "m", 0, {8, 8}, {values}}}, "", {{Kind::kOutput, "m", 0, {8, 8}, {ones}}});
  CHECK(root.diagnosis == Cause::kCoarserPrecision);
  CHECK_MESSAGE(says(root, "0 mantissa bits or fewer (float8 e4m3, or narrower)"), root.sentence);
}

TEST_CASE("a factor that is the number of micro-batches") {
  std::vector<RankTensor> reference;
  for (std::int32_t microbatch = 0; microbatch < 4; ++microbatch)
    reference.push_back({Kind::kScalar, "loss", microbatch, {}, {{1.0}}});
  std::vector<RankTensor> candidate = reference;
  Elements values = random_elements(64, 1);
  reference.push_back({Kind::kMainGrad, "w", kNoMicrobatch, {8, 8}, {values}});
  for (double& value : values) value /= 4;
  candidate.push_back({Kind::kMainGrad, "w", kNoMicrobatch, {8, 8}, {values}});
  const RootCause root = first_root(reference, "", candidate);
  CHECK(root.diagnosis == Cause::kUniformFactor);
  CHECK_MESSAGE(says(root, "0.25 times the reference's, one over the number of micro-batches"), root.sentence);
}

TEST_CASE("a factor is recognised where next to nothing is allowed, as in float32") {
  std::vector<RankTensor> reference = {{Kind::kMainGrad, "w", kNoMicrobatch, {256, 256}, {random_elements(65536, 3)}}};
  std::vector<RankTensor> candidate = reference;
  for (double& value : candidate[0].held[0]) value *= 0.25;
  const RootCause root = all_roots(reference, "dp=4", candidate, "", 1e-6)[0];
  CHECK(root.diagnosis == Cause::kUniformFactor);
  CHECK_MESSAGE(says(root, "0.25 times the reference's, one over the size of dp"), root.sentence);
}

TEST_CASE("a gradient that was summed over ranks after each micro-batch, with what was accumulated before") {
  std::vector<RankTensor> reference;
  Elements sum(8), again(8), doubled(8);
  for (std::int32_t microbatch = 0; microbatch < 4; ++microbatch) {
    const Elements term = random_elements(8, 20 + static_cast<std::uint32_t>(microbatch));
    for (std::size_t i = 0; i < 8; ++i) {
      sum[i] += term[i];
      again[i] = 2 * again[i] + term[i];
      doubled[i] += term[i] * (microbatch + 1);
    }
    reference.push_back({Kind::kParamGrad, "q_norm.weight", microbatch, {8}, {term}});
  }
  std::vector<RankTensor> candidate = reference;
  reference.push_back({Kind::kMainGrad, "q_norm.weight", kNoMicrobatch, {8}, {sum}});
  candidate.push_back({Kind::kMainGrad, "q_norm.weight", kNoMicrobatch, {8}, {again}});
  const RootCause root = first_root(reference, "tp=2", candidate);
  CHECK(root.diagnosis == Cause::kAccumulatedAgain);
  CHECK_MESSAGE(says(root, "micro-batch k of 4 counts 2^(4 - k) times"), root.sentence);
  CHECK(first_root(reference, "tp=3", candidate).diagnosis != Cause::kAccumulatedAgain);
  candidate.back().held = {doubled};
  CHECK(first_root(reference, "tp=2", candidate).diagnosis != Cause::kAccumulatedAgain);
}

TEST_CASE("one mistake that shows in many parameters is one cause, and another is another") {
  std::vector<RankTensor> reference, candidate;
  for (int layer = 0; layer < 4; ++layer) {
    for (const char* module : {"q", "k", "mlp"}) {
      const std::string name = "layers." + std::to_string(layer) + "." + module + ".weight";
      Elements values = random_elements(64, static_cast<std::uint32_t>(reference.size()));
      reference.push_back({Kind::kParamGrad, name, 0, {8, 8}, {values}});
      candidate.push_back(reference.back());
      reference.push_back({Kind::kMainGrad, name, kNoMicrobatch, {8, 8}, {values}});
      for (double& value : values) value *= std::string(module) == "mlp" ? 4 : 2;
      candidate.push_back({Kind::kMainGrad, name, kNoMicrobatch, {8, 8}, {values}});
    }
  }
  const std::vector<RootCause> roots = all_roots(reference, "tp=2", candidate);
  REQUIRE(roots.size() == 2);
  CHECK(roots[0].alike.size() + roots[1].alike.size() == 10);
  CHECK_MESSAGE(says(roots[0],
                     "2 times the reference's, the size of tp; the same in 7 more tensors: "
                     "layers.*.k.weight, layers.*.q.weight"),
                roots[0].sentence);
}

TEST_CASE("parameters of another seed are not called wrong rows, and the cure is named") {
  std::vector<RankTensor> reference, candidate;
  for (const char* name : {"embedding.weight", "fc1.weight", "fc2.weight"}) {
    const auto seed = static_cast<std::uint32_t>(reference.size());
    reference.push_back({Kind::kParam, name, kNoMicrobatch, {16, 16}, {random_elements(256, seed)}});
    candidate.push_back({Kind::kParam, name, kNoMicrobatch, {16, 16}, {random_elements(256, seed + 100)}});
  }
  const std::vector<RankTensor> norm = {{Kind::kParam, "norm.weight", kNoMicrobatch, {16}, {Elements(16, 1)}}};
  reference.push_back(norm[0]);
  candidate.push_back(norm[0]);
  const std::vector<RootCause> roots = all_roots(reference, "tp=2", candidate);
  REQUIRE(roots.size() == 1);
  CHECK(roots[0].diagnosis == Cause::kOtherInitialisation);
  CHECK_MESSAGE(says(roots[0], "3 of 3 weights have nothing in common with the reference's but their size"),
                roots[0].sentence);
  CHECK(says(roots[0], "--inject-params"));
  std::vector<RankTensor> on_rank_1 = candidate;
  for (std::size_t i = 0; i < 3; ++i) on_rank_1[i].held = {reference[i].held[0], candidate[i].held[0]};
  CHECK(says(all_roots(reference, "dp=2", on_rank_1)[0], "in the copies of rank 1, as those of another seed"));
  candidate[1] = reference[1];  // two of three are no initialisation, but a mistake
  CHECK(all_roots(reference, "tp=2", candidate)[0].diagnosis != Cause::kOtherInitialisation);
}

TEST_CASE("a number is a multiple of any other: a factor is named only where it means something") {
  const auto diagnosis = [](double loss) {
    return first_root({{Kind::kScalar, "loss", 0, {}, {{4.0}}}}, "cp=2", {{Kind::kScalar, "loss", 0, {}, {{loss}}}})
        .diagnosis;
  };
  CHECK(diagnosis(8) == Cause::kUniformFactor);
  CHECK(diagnosis(2) == Cause::kUniformFactor);
  CHECK(!diagnosis(4.7));
}

namespace {

struct Damage {
  const char* what;
  Elements (*apply)(Elements, std::mt19937&);
  bool may_be_region;  // it is one: a part is wrong and the rest is right
};

// Adds noise of thirty times what is allowed to a random box.
Elements noise_in_box(Elements values, std::mt19937& random) {
  const std::size_t row = random() % 12, column = random() % 12, rows = 1 + random() % 8, columns = 1 + random() % 8;
  std::uniform_real_distribution<double> noise(-30 * kAllowed, 30 * kAllowed);
  for (std::size_t i = row; i < std::min<std::size_t>(16, row + rows); ++i) {
    for (std::size_t j = column; j < std::min<std::size_t>(16, column + columns); ++j)
      values[i * 16 + j] += noise(random);
  }
  return values;
}
// Gives an element the other sign and a large size, so that the error exceeds what is allowed.
Elements turned_sign(Elements values, std::mt19937& random) {
  double& value = values[random() % values.size()];
  value = value < 0 ? 2 : -2;
  return values;
}
Elements with_bias(Elements values, std::mt19937& random) {
  const double bias = 0.1 + 0.001 * static_cast<double>(random() % 900);
  for (double& value : values) value += bias;
  return values;
}
Elements with_bias_of_columns(Elements values, std::mt19937& random) {
  const Elements bias = random_elements(16, random());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += bias[i % 16];
  return values;
}
Elements noise_everywhere(Elements values, std::mt19937& random) {
  const Elements noise = random_elements(256, random(), 0.04 + 0.01 * static_cast<double>(random() % 100));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += noise[i];
  return values;
}
Elements squared(Elements values, std::mt19937&) {
  for (double& value : values) value *= std::abs(value);
  return values;
}

}  // namespace

TEST_CASE("what never changes is not stale, and what is nearly zero is no factor") {
  const Elements positions = random_elements(256, 1), noise = random_elements(256, 2, 0.5);
  Elements wrong = positions;
  for (std::size_t i = 0; i < 256; ++i) wrong[i] += noise[i];
  std::vector<RankTensor> reference, candidate;
  for (std::int32_t microbatch = 0; microbatch < 2; ++microbatch) {
    reference.push_back({Kind::kOutput, "positions", microbatch, {16, 16}, {positions}});
    candidate.push_back({Kind::kOutput, "positions", microbatch, {16, 16}, {wrong}});
  }
  const RootCause same = first_root(reference, "", candidate);
  CHECK_MESSAGE(!same.diagnosis, same.sentence);

  const Elements values = random_elements(64, 3, 1e-3);
  Elements squares = values;
  for (double& value : squares) value *= std::abs(value);
  const RootCause tiny =
      first_root({{Kind::kOutput, "m", 0, {8, 8}, {values}}}, "tp=2",
                 {{Kind::kOutput, "m", 0, {8, 4}, {columns_of(squares, 8, 0, 4), columns_of(values, 8, 4, 8)}}},
                 "m:\n  output: {tp_dim: 1}\n");
  CHECK_MESSAGE(tiny.diagnosis == Cause::kRegion, tiny.sentence);
}

TEST_CASE("errors that are no known mistake are not called one") {
  const Damage damages[] = {{"noise in a box", noise_in_box, true},
                            {"a turned sign", turned_sign, true},
                            {"a bias", with_bias, false},
                            {"a bias by column", with_bias_of_columns, false},
                            {"noise everywhere", noise_everywhere, false},
                            {"squares", squared, false}};
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    // A linear with all that belongs to it, and each of its tensors damaged in turn, on one rank, copied, or split.
    std::vector<RankTensor> reference;
    for (std::int32_t microbatch = 0; microbatch < 2; ++microbatch) {
      for (const Kind kind : {Kind::kInput, Kind::kOutput, Kind::kGradOutput, Kind::kGradInput})
        reference.push_back({kind, "m", microbatch, {16, 16}, {random_elements(256, random())}});
      reference.push_back({Kind::kParamGrad, "m.weight", microbatch, {16, 16}, {random_elements(256, random())}});
    }
    Elements sum = reference[4].held[0];
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += reference[9].held[0][i];
    reference.push_back({Kind::kMainGrad, "m.weight", kNoMicrobatch, {16, 16}, {sum}});
    for (const Damage& damage : damages) {
      std::vector<RankTensor> candidate = reference;
      RankTensor& wrong = candidate[random() % candidate.size()];
      wrong.held = {damage.apply(wrong.held[0], random)};
      const bool split = random() % 2 == 0;
      if (split) {
        for (RankTensor& tensor : candidate) {
          tensor.shape = {16, 8};
          tensor.held = {columns_of(tensor.held[0], 16, 0, 8), columns_of(tensor.held[0], 16, 8, 16)};
        }
      }
      const std::string text = split ? "m:\n  input: {tp_dim: 1}\n  output: {tp_dim: 1}\nm.weight: {tp_dim: 1}\n"
                                     : "m:\n  input: {tp: replicate}\n  output: {tp: replicate}\n";
      const RootCause root = first_root(reference, "tp=2", candidate, text);
      const bool fine = !root.diagnosis || (damage.may_be_region && root.diagnosis == Cause::kRegion);
      REQUIRE_MESSAGE(fine, damage.what << ": " << root.sentence);
    }
  }
}

TEST_SUITE_END();
