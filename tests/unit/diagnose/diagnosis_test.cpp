#include "diagnose/diagnosis.h"

#include <doctest/doctest.h>

#include <random>

#include "diagnose/root_causes.h"
#include "support/aligned.h"
#include "support/trace_builder.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("diagnose");

namespace {

constexpr std::int64_t kRows = 8, kColumns = 6;

// Returns a random number that depends on the tensor's name, micro-batch and element alone.
double value_of(const std::string& name, std::int64_t microbatch, std::int64_t i) {
  std::mt19937_64 random(std::hash<std::string>{}(name) + static_cast<std::uint64_t>(1000 * microbatch + i));
  random.discard(3);
  return std::uniform_real_distribution<double>(-1, 1)(random);
}

struct Recorded {
  Kind kind;
  std::string name;
  std::int32_t microbatch;
  Shape shape;
  ElementValue values;
};

Trace trace_of(const std::string& axes, const std::vector<Recorded>& tensors) {
  TraceBuilder builder;
  builder.axes(axes).run_id(axes + "-run");
  for (const Recorded& tensor : tensors) {
    TensorSpec spec;
    spec.id = {.microbatch = tensor.microbatch, .kind = tensor.kind, .name = tensor.name};
    spec.shape = tensor.shape;
    spec.values = tensor.values;
    builder.tensor(spec);
  }
  return builder.read();
}

Recorded whole(Kind kind, const std::string& name, std::int32_t microbatch = 0) {
  return {kind, name, microbatch, {kRows, kColumns}, [=](std::int32_t, std::int64_t i) {
            return value_of(name, microbatch, i);
          }};
}

// Checks a candidate on `axes`, every rank of which holds `values` of the tensor `m`, and returns the first root.
RootCause root_of(ElementValue values, Kind kind = Kind::kOutput, std::vector<Recorded> others = {},
                  const std::string& axes = "tp=2", const std::string& text = "m: {output: {tp: replicate}}",
                  bool is_zero = false) {
  std::vector<Recorded> reference = others, candidate = others;
  reference.push_back(whole(kind, "m"));
  if (is_zero) reference.back().values = [](std::int32_t, std::int64_t) { return 0.0; };
  candidate.push_back({kind, "m", 0, {kRows, kColumns}, std::move(values)});
  const Trace a = trace_of("", reference), b = trace_of(axes, candidate);
  const Alignment reference_tensors = align(a, annotations(text), {});
  const Alignment candidate_tensors = align(b, annotations(text), layout_of(reference_tensors));
  const Matching matching = match(reference_tensors, candidate_tensors);
  Report report = judge_all(reference_tensors, matching, compare(matching.pairs, {1, {}, false}), nullptr);
  add_root_causes(report, {reference_tensors, candidate_tensors, b.mesh, {}});
  REQUIRE(report.explanation.roots.size() >= 1);
  return report.explanation.roots[0];
}

double m(std::int64_t i) { return value_of("m", 0, i); }

}  // namespace

TEST_CASE("a uniform factor is named, and whose size it is") {
  const RootCause root = root_of([](std::int32_t, std::int64_t i) { return 2 * m(i); });
  CHECK(root.diagnosis == Cause::kUniformFactor);
  CHECK(root.sentence == "m, output, micro-batch 0: every element is 2 times the reference's, the size of tp.");
}

TEST_CASE("terms that were never summed, and values never averaged") {
  const RootCause sum = root_of([](std::int32_t rank, std::int64_t i) { return rank == 0 ? 0.25 : m(i) - 0.25; });
  CHECK(sum.diagnosis == Cause::kUnreduced);
  CHECK(sum.sentence.find("the 2 ranks of tp hold unsummed partial values") != std::string::npos);
  const RootCause mean = root_of([](std::int32_t rank, std::int64_t i) { return m(i) + (rank == 0 ? 0.5 : -0.5); });
  CHECK(mean.diagnosis == Cause::kUnreduced);
  CHECK(mean.sentence.find("never averaged") != std::string::npos);
}

TEST_CASE("terms are summed over an axis of the factoring that the tensor lies on") {
  const RootCause root = root_of([](std::int32_t rank, std::int64_t i) { return rank < 2 ? 0.25 : m(i) - 0.25; },
                                 Kind::kOutput, {}, "dp=4/ep=2,edp=2", "m: {output: {ep: replicate}}");
  CHECK(root.diagnosis == Cause::kUnreduced);
  CHECK(root.sentence.find("the 2 ranks of edp hold unsummed partial values") != std::string::npos);
}

TEST_CASE("zeros, and what an optimizer never changed") {
  CHECK(root_of([](std::int32_t, std::int64_t) { return 0.0; }).diagnosis == Cause::kZero);
  CHECK(root_of([](std::int32_t, std::int64_t) { return 0.0; }, Kind::kParamDelta).diagnosis == Cause::kNeverUpdated);
}

TEST_CASE("a value of another micro-batch, or of another tensor") {
  const auto earlier = [](std::int32_t, std::int64_t i) { return value_of("m", 3, i); };
  CHECK(root_of(earlier, Kind::kOutput, {whole(Kind::kOutput, "m", 3)}).diagnosis == Cause::kStale);
  const auto another = [](std::int32_t, std::int64_t i) { return value_of("n", 0, i); };
  const RootCause root = root_of(another, Kind::kOutput, {whole(Kind::kOutput, "n")});
  CHECK(root.diagnosis == Cause::kOtherTensor);
  CHECK(root.sentence.find("it is the output of n") != std::string::npos);
}

TEST_CASE("blocks in another order, and elements read as if transposed") {
  const RootCause swapped = root_of([](std::int32_t, std::int64_t i) {
    const std::int64_t row = i / kColumns, source = row < 2 || row >= 6 ? row : row < 4 ? row + 2 : row - 2;
    return m(source * kColumns + i % kColumns);
  });
  CHECK(swapped.diagnosis == Cause::kPermutedBlocks);
  CHECK(swapped.sentence.find("of 4 blocks of dimension 0, those at 0, 1, ... are the reference's 0, 2, 1, 3") !=
        std::string::npos);
  const RootCause transposed =
      root_of([](std::int32_t, std::int64_t i) { return m(i % kRows * kColumns + i / kRows); });
  CHECK(transposed.diagnosis == Cause::kReinterpreted);
}

TEST_CASE("a gradient that lacks a micro-batch") {
  std::vector<Recorded> terms;
  const auto main_grad = [](std::int64_t i) { return m(i); };
  // The reference's main gradient is the mean of two micro-batches' gradients.
  const auto second = [=](std::int32_t, std::int64_t i) { return 2 * main_grad(i) - value_of("m", 1, i); };
  terms.push_back(
      {Kind::kParamGrad, "m", 0, {kRows, kColumns}, [](std::int32_t, std::int64_t i) { return value_of("m", 1, i); }});
  terms.push_back({Kind::kParamGrad, "m", 1, {kRows, kColumns}, second});
  const RootCause root =
      root_of([](std::int32_t, std::int64_t i) { return value_of("m", 1, i) / 2; }, Kind::kMainGrad, terms);
  CHECK(root.diagnosis == Cause::kMissingContribution);
  CHECK(root.sentence.find("lacks the gradient of micro-batch 1") != std::string::npos);
}

TEST_CASE("rows that hold others, a part that is wrong, a part with a factor") {
  const RootCause rows = root_of([](std::int32_t, std::int64_t i) {
    const std::int64_t row = i / kColumns;
    return m((row % 3 == 1 ? 5 : row) * kColumns + i % kColumns);
  });
  CHECK(rows.diagnosis == Cause::kOtherRows);
  CHECK(rows.sentence.find("3 of 8 rows hold the value of row 5") != std::string::npos);
  const RootCause part =
      root_of([](std::int32_t, std::int64_t i) { return i / kColumns >= 6 ? m(i) + 0.3 * value_of("x", 0, i) : m(i); });
  CHECK(part.diagnosis == Cause::kRegion);
  CHECK(part.sentence.find("wrong at 6-7 of dimension 0 only (2 of 8)") != std::string::npos);
}

TEST_CASE("an error like no other gets no diagnosis") {
  const RootCause root = root_of([](std::int32_t, std::int64_t i) { return m(i) + 0.3 * value_of("x", 0, i); });
  CHECK(!root.diagnosis);
  CHECK(root.sentence ==
        "m, output, micro-batch 0: nothing known explains the error (0.28 of its norm, on ranks 0, 1).");
}

TEST_CASE("a part that is wrong where the reference is zero all over") {
  const RootCause root =
      root_of([](std::int32_t, std::int64_t i) { return i / kColumns >= 6 ? value_of("x", 0, i) : 0; }, Kind::kOutput,
              {}, "tp=2", "m: {output: {tp: replicate}}", true);
  CHECK(root.diagnosis == Cause::kRegion);
  CHECK(root.sentence.find("wrong at 6-7 of dimension 0 only (2 of 8)") != std::string::npos);
}

TEST_CASE("noise is not taken for a mistake") {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const double size = std::pow(10, -static_cast<double>(random() % 4));
    const std::string seed = std::to_string(random());
    const RootCause root =
        root_of([=](std::int32_t, std::int64_t i) { return m(i) * (1 + size * value_of(seed, 0, i)); });
    REQUIRE_MESSAGE(!root.diagnosis, root.sentence);
  }
}

TEST_SUITE_END();
