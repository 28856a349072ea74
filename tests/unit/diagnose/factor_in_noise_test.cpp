#include <doctest/doctest.h>

#include <functional>
#include <random>

#include "diagnose/root_causes.h"
#include "support/aligned.h"
#include "support/trace_builder.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("diagnose");

namespace {

constexpr std::int64_t kSide = 64;

double noise_of(std::int64_t i, std::uint64_t seed) {
  std::mt19937_64 random(seed * 1'000'003 + static_cast<std::uint64_t>(i));
  random.discard(3);
  return std::uniform_real_distribution<double>(-1, 1)(random);
}

Trace trace_of(const std::string& run, const std::function<double(std::int64_t)>& value) {
  TraceBuilder builder;
  builder.axes("").run_id(run);
  TensorSpec spec;
  spec.id = {.microbatch = 0, .kind = Kind::kOutput, .name = "fc"};
  spec.shape = {kSide, kSide};
  spec.values = [&](std::int32_t, std::int64_t i) { return value(i); };
  builder.tensor(spec);
  return builder.read();
}

// The first root of a candidate with 1 % noise whose element i is `factor(i)` times the reference's. Correct runs have
// 10 %, and a scale within 0.001.
RootCause root_of(const std::function<double(std::int64_t)>& factor) {
  const auto right = [](std::int64_t i) { return noise_of(i, 1); };
  const Trace a = trace_of("a", right);
  const Trace b = trace_of("b", [&](std::int64_t i) { return right(i) * factor(i) + 0.01 * noise_of(i, 2); });
  const Alignment reference = align(a, annotations(""), {});
  const Alignment candidate = align(b, annotations(""), layout_of(reference));
  ToleranceFile tolerance;
  Tolerance& allowed = tolerance.tensors[{Kind::kOutput, "fc"}];
  allowed.estimate = 0.03;
  allowed.allowed = 0.1;
  allowed.statistics[Statistic::kScale].allowed = 0.001;
  const Matching matching = match(reference, candidate);
  Report report = judge_all(reference, matching, compare(matching.pairs, {1, {}, false}), &tolerance);
  add_root_causes(report, {reference, candidate, b.mesh, {}});
  REQUIRE(report.explanation.roots.size() == 1);
  REQUIRE(report.findings[0].exceeded == Statistic::kScale);
  return report.explanation.roots[0];
}

}  // namespace

TEST_CASE("a factor that is smaller than the noise of an element is named where every part of the tensor has it") {
  const RootCause root = root_of([](std::int64_t) { return 1.01; });
  CHECK(root.diagnosis == Cause::kUniformFactor);
  CHECK_MESSAGE(root.sentence.find("every element is 1.0") != std::string::npos, root.sentence);
  CHECK_MESSAGE(root.sentence.find("times the reference's, but for noise") != std::string::npos, root.sentence);
}

TEST_CASE("a factor of some rows or of some columns is no factor of every element") {
  CHECK_FALSE(root_of([](std::int64_t i) { return i < kSide * kSide / 2 ? 1.02 : 1; }).diagnosis);
  CHECK_FALSE(root_of([](std::int64_t i) { return i % kSide < kSide / 2 ? 1.02 : 1; }).diagnosis);
  CHECK_FALSE(root_of([](std::int64_t i) { return i < 4 * kSide ? 1 : 1.01; }).diagnosis);  // a sixteenth has none
}
