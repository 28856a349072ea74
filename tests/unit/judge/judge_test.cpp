#include "judge/judge.h"

#include <doctest/doctest.h>

#include <cmath>

#include "support/differences.h"
#include "support/mesh_trace.h"

namespace {

using namespace ttrace;
using test::bytes_of;
using Ranks = std::vector<std::int32_t>;

using ttrace::test::kInf;
using ttrace::test::kNan;

// A tensor that both sides hold; each test adds the shards.
struct Sides {
  explicit Sides(const Shape& shape, Dtype dtype = Dtype::kFloat32) {
    reference = shards.tensor(dtype, shape);
    reference.id = test::tensor_id(Kind::kOutput, "mlp", 0);
    reference.order = 7;
    candidate = reference;
  }

  Finding judged(const ToleranceFile* tolerance) const {
    return judge({&reference, &candidate}, test::difference(reference, candidate), tolerance);
  }

  test::Shards shards;
  LogicalTensor reference, candidate;
};

// Measures and judges a tensor that one rank holds on each side.
template <class T>
Finding judged(const std::vector<T>& reference, const std::vector<T>& candidate, const ToleranceFile* tolerance,
               Dtype dtype = Dtype::kFloat32) {
  Sides sides({static_cast<std::int64_t>(reference.size())}, dtype);
  sides.shards.add(sides.reference, bytes_of(reference), {.parts = {1}});
  sides.shards.add(sides.candidate, bytes_of(candidate), {.parts = {1}});
  return sides.judged(tolerance);
}

// Does the same where the two sides have dtypes of their own.
template <class T, class U>
Finding judged_of_two(const std::vector<T>& reference, Dtype dtype, const std::vector<U>& candidate, Dtype other) {
  Sides sides({static_cast<std::int64_t>(reference.size())}, dtype);
  sides.candidate.dtype = other;
  sides.shards.add(sides.reference, bytes_of(reference), {.parts = {1}});
  sides.shards.add(sides.candidate, bytes_of(candidate), {.parts = {1}});
  return sides.judged(nullptr);
}

Finding judged_floats(const std::vector<float>& reference, const std::vector<float>& candidate,
                      const ToleranceFile* tolerance) {
  return judged(reference, candidate, tolerance);
}

ToleranceFile allowing(double allowed) {
  ToleranceFile file;
  file.tensors[{Kind::kOutput, "mlp"}].allowed = allowed;
  return file;
}

void check_verdict(const Finding& finding, Verdict verdict, Reason reason, const std::string& what) {
  CHECK(name_of(finding.verdict) == name_of(verdict));
  CHECK(name_of(finding.reason) == name_of(reason));
  CHECK(finding.message == "mlp output, iteration 0, micro-batch 0: " + what);
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("a difference as large as allowed passes, and the next larger one fails") {
  const ToleranceFile enough = allowing(0.1), short_of = allowing(std::nextafter(0.1, 0));
  const Finding same = judged_floats({3, 4}, {3, 4.5}, &enough);
  check_verdict(same, Verdict::kPass, Reason::kNone, "same");
  CHECK(same.ranks.empty());
  CHECK(same.allowed == 0.1);
  CHECK(same.order == 7);
  REQUIRE(same.difference.has_value());
  CHECK(same.difference->rel_err() == 0.1);
  CHECK(judged_floats({3, 4}, {3, 4.5}, &short_of).reason == Reason::kExceedsTolerance);
}

TEST_CASE("what a choice that rounding decides has moved lets nothing pass") {
  ToleranceFile tolerance = allowing(0.6);
  tolerance.margin = 3;
  Tolerance& entry = tolerance.tensors.begin()->second;
  entry.samples = {1e-6, 0.2, 2e-6};
  const Finding near = judged_floats({3, 4}, {3, 4.00002F}, &tolerance);
  CHECK(near.verdict == Verdict::kPass);
  const Finding far = judged_floats({3, 4}, {3, 4.5}, &tolerance);
  check_verdict(
      far, Verdict::kUntrusted, Reason::kNoise,
      "rel_err 0.1: rounding decides a choice, as of which of equal scores are the largest, which moves it so "
      "in runs of the reference; without that 6e-06 is allowed");
  CHECK(judged_floats({3, 4}, {3, 9}, &tolerance).verdict == Verdict::kFail);
  // A spread without a gap is no choice, nor is a gap below 1 %.
  for (const std::vector<double>& samples : {std::vector{1e-3, 0.2, 0.01}, std::vector{1e-6, 5e-3, 2e-6}}) {
    entry.samples = samples;
    CHECK(judged_floats({3, 4}, {3, 4.5}, &tolerance).verdict == Verdict::kPass);
  }
}

TEST_CASE("a tensor that exceeds its tolerance says by how much, where it is worst and on which rank") {
  const ToleranceFile tolerance = allowing(0.05);
  const Finding finding = judged_floats({3, 4}, {3, 4.5}, &tolerance);
  check_verdict(finding, Verdict::kFail, Reason::kExceedsTolerance,
                "rel_err 0.1, allowed 0.05 (2 times); worst at [1]: reference 4, candidate 4.5, on rank 0");
  CHECK(finding.ranks == Ranks{0});
}

TEST_CASE("integers against floating point are compared by value, and prove nothing") {
  const std::vector<std::int64_t> counted = {7, 9};
  const Finding same = judged_of_two(counted, Dtype::kInt64, std::vector<float>{7, 9}, Dtype::kFloat32);
  check_verdict(same, Verdict::kPass, Reason::kNone, "same");
  CHECK_FALSE(same.floating);
  const Finding other = judged_of_two(std::vector<float>{7, 9.5}, Dtype::kFloat32, counted, Dtype::kInt64);
  CHECK(other.verdict == Verdict::kFail);
  CHECK(other.reason == Reason::kIntegerDiffers);
}

TEST_CASE("a mask that is bool on one side and added on the other is a remark, and equal ones pass") {
  const std::vector<std::uint8_t> mask = {1, 0};
  const Finding added = judged_of_two(mask, Dtype::kBool, std::vector<float>{0, -kInf}, Dtype::kFloat32);
  check_verdict(added, Verdict::kUntrusted, Reason::kDtypeMismatch,
                "bool in the reference and float32 in the candidate, with other values, as masks of two kinds have; "
                "what it does shows in what is computed with it");
  CHECK_FALSE(is_wrong(added));
  CHECK_FALSE(added.floating);
  const Finding one = judged_of_two(std::vector<float>{1, 0}, Dtype::kFloat32, mask, Dtype::kBool);
  check_verdict(one, Verdict::kPass, Reason::kNone, "same");
}

TEST_CASE("without a tolerance file equal tensors pass and the least difference fails") {
  check_verdict(judged_floats({1, 2}, {1, 2}, nullptr), Verdict::kPass, Reason::kNone, "same");
  const float next = std::nextafter(2.0f, 3.0f);
  const Finding finding = judged_floats({1, 2}, {1, next}, nullptr);
  CHECK(finding.verdict == Verdict::kFail);
  CHECK(finding.reason == Reason::kExceedsTolerance);
  CHECK(finding.allowed == 0);
}

TEST_CASE("an override of 0 demands equality") {
  ToleranceFile tolerance = allowing(0.5);
  tolerance.overrides = {{"mlp", std::nullopt, 0, "exact by design", 1}};
  CHECK(judged_floats({1, 2}, {1, 2}, &tolerance).verdict == Verdict::kPass);
  CHECK(judged_floats({1, 2}, {1, std::nextafter(2.0f, 3.0f)}, &tolerance).verdict == Verdict::kFail);
}

TEST_CASE("a tensor that the tolerance file does not list is untrusted, unless it is equal") {
  const ToleranceFile nothing;
  check_verdict(judged_floats({3, 4}, {3, 4.5}, &nothing), Verdict::kUntrusted, Reason::kNoTolerance,
                "rel_err 0.1, and the tolerance file does not list it");
  check_verdict(judged_floats({3, 4}, {3, 4}, &nothing), Verdict::kPass, Reason::kNone, "same");
}

TEST_CASE("noise has the magnitude of noise: a value far larger, far smaller or zero fails") {
  const ToleranceFile noise = allowing(2);
  const std::vector<float> reference = {1, -1, 1, -1};
  const auto times = [&](float factor) {
    std::vector<float> values = reference;
    for (float& value : values) value *= factor;
    return judged_floats(reference, values, &noise);
  };
  for (const float factor : {-1.0f, 0.1f, 2.0f, 20.0f}) CHECK(times(factor).reason == Reason::kNoise);
  check_verdict(times(1e6f), Verdict::kFail, Reason::kExceedsTolerance,
                "rel_err 1e+06: more than 10 times what is allowed, 2, and that is noise");
  CHECK(times(1e30f).verdict == Verdict::kFail);
  check_verdict(times(1e-3f), Verdict::kFail, Reason::kExceedsTolerance,
                "its norm is 0.001 of the reference's: too little for noise, which may differ by 2");
  check_verdict(times(0), Verdict::kFail, Reason::kExceedsTolerance, "zero, and the reference is not");
  CHECK(judged_floats({0, 0}, {3, 4}, &noise).reason == Reason::kNoise);  // of no magnitude that is known
  CHECK(judged_floats({1}, {1e-3f}, &noise).reason == Reason::kNoise);    // one element may be small by chance
}

TEST_CASE("noise may be zero where a perturbed run of the reference has had zero") {
  ToleranceFile noise = allowing(3);
  Tolerance& tolerance = noise.tensors[{Kind::kOutput, "mlp"}];
  tolerance.samples = {0.9, 1, 1.1};
  CHECK(judged_floats({1e-9f, -1e-9f}, {0, 0}, &noise).reason == Reason::kNoise);
  tolerance.samples = {0.9, 1.05, 1.1};
  CHECK(judged_floats({1e-9f, -1e-9f}, {0, 0}, &noise).verdict == Verdict::kFail);
}

TEST_CASE("so may few elements be whose terms cancel, so that their rounding is as large as they are") {
  ToleranceFile noise = allowing(3);
  Tolerance& tolerance = noise.tensors[{Kind::kOutput, "mlp"}];
  tolerance.floor = 1;
  CHECK(judged_floats({1e-9f}, {0}, &noise).reason == Reason::kNoise);
  CHECK(judged_floats({1e-9f, 1e-9f, 1e-9f, 1e-9f}, {0, 0, 0, 0}, &noise).verdict == Verdict::kFail);
  tolerance.floor = 0.9;
  CHECK(judged_floats({1e-9f}, {0}, &noise).verdict == Verdict::kFail);
}

TEST_CASE("an override excuses what the estimate would not let pass") {
  ToleranceFile tolerance = allowing(0.05);
  tolerance.overrides = {{"mlp", std::nullopt, 0.5, "known", 1}};
  const Finding excused = judged_floats({3, 4}, {3, 4.5}, &tolerance),
                needless = judged_floats({3, 4}, {3, 4.1f}, &tolerance);
  CHECK(excused.verdict == Verdict::kPass);
  CHECK(excused.excused);
  CHECK(excused.by_override == 0);
  CHECK_FALSE(needless.excused);
  CHECK(needless.by_override == 0);
}

TEST_CASE("of a tensor that is mostly NaN on both sides the rest proves nothing") {
  const ToleranceFile tolerance = allowing(0.1);
  check_verdict(judged_floats({kNan, kNan, 1}, {kNan, kNan, 1}, &tolerance), Verdict::kUntrusted, Reason::kEmpty,
                "2 of 3 elements are NaN");
  CHECK(judged_floats({kNan, 2, 1}, {kNan, 2, 1}, &tolerance).verdict == Verdict::kPass);
  CHECK(judged_floats({-kInf, -kInf, 1}, {-kInf, -kInf, 1}, &tolerance).verdict == Verdict::kPass);  // a mask
}

TEST_CASE("a tolerance of 1 would pass anything, so that nothing is trusted by it") {
  const ToleranceFile noise = allowing(1), just_below = allowing(std::nextafter(1.0, 0.0));
  check_verdict(judged_floats({3, 4}, {3, 4.5}, &noise), Verdict::kUntrusted, Reason::kNoise,
                "rel_err 0.1, allowed 1: noise as large as the value");
  CHECK(judged_floats({3, 4}, {30, 40}, &noise).reason == Reason::kNoise);
  CHECK(judged_floats({3, 4}, {3, 4.5}, &just_below).verdict == Verdict::kPass);
  CHECK(judged_floats({3, 4}, {3, 4}, &noise).verdict == Verdict::kPass);
}

TEST_CASE("zero on both sides proves nothing") {
  const ToleranceFile tolerance = allowing(0.1);
  for (const ToleranceFile* file : {&tolerance, static_cast<const ToleranceFile*>(nullptr)}) {
    check_verdict(judged_floats({0, 0}, {0, -0.0f}, file), Verdict::kUntrusted, Reason::kAllZero, "zero on both sides");
  }
}

TEST_CASE("a zero reference and a candidate that is not zero fail, whatever is allowed short of noise") {
  const ToleranceFile tolerance = allowing(0.99);
  check_verdict(judged_floats({0, 0}, {0, 1e-30f}, &tolerance), Verdict::kFail, Reason::kExceedsTolerance,
                "rel_err inf, allowed 0.99 (the reference is zero); worst at [1]: reference 0, candidate 1e-30, "
                "on rank 0");
}

TEST_CASE("a zero candidate of a reference that is not zero fails") {
  const ToleranceFile tolerance = allowing(0.99);
  const Finding finding = judged_floats({3, 4}, {0, 0}, &tolerance);
  check_verdict(finding, Verdict::kFail, Reason::kExceedsTolerance,
                "rel_err 1, allowed 0.99 (1.01 times); worst at [1]: reference 4, candidate 0, on rank 0");
}

TEST_CASE("a tensor without elements is untrusted") {
  Sides sides({0, 4});
  sides.shards.add(sides.reference, {}, {.parts = {1, 1}});
  sides.shards.add(sides.candidate, {}, {.parts = {1, 1}});
  const ToleranceFile tolerance = allowing(0.1);
  check_verdict(sides.judged(&tolerance), Verdict::kUntrusted, Reason::kEmpty, "no elements");
  check_verdict(sides.judged(nullptr), Verdict::kUntrusted, Reason::kEmpty, "no elements");
}

TEST_CASE("NaN or Inf at other places fails, even where any value would pass") {
  const ToleranceFile noise = allowing(2);
  const Finding finding = judged_floats({1, 2, kInf}, {1, kNan, -kInf}, &noise);
  check_verdict(finding, Verdict::kFail, Reason::kNotFinite,
                "NaN or Inf at other places: the reference has 0 NaN and 1 Inf, the candidate 1 NaN and 1 Inf; "
                "2 of 3 elements disagree");
  CHECK(finding.ranks == Ranks{0});
  CHECK(judged_floats({kNan, 2}, {1, 2}, &noise).reason == Reason::kNotFinite);
}

TEST_CASE("only the ranks that hold an unmatched NaN are named") {
  Sides sides({4});
  sides.shards.add(sides.reference, bytes_of<float>({1, 2, 3, 4}), {.parts = {1}});
  sides.shards.add(sides.candidate, bytes_of<float>({1, 9, kNan, 4}), {.parts = {4}});
  CHECK(sides.judged(nullptr).ranks == Ranks{2});
}

TEST_CASE("NaN and Inf at the same places are left out, and the other elements decide") {
  const ToleranceFile tolerance = allowing(0.1);
  check_verdict(judged_floats({kNan, kInf, 4}, {kNan, kInf, 4}, &tolerance), Verdict::kPass, Reason::kNone, "same");
  CHECK(judged_floats({kNan, kInf, 4}, {kNan, kInf, 5}, &tolerance).reason == Reason::kExceedsTolerance);
  check_verdict(judged_floats({kNan, -kInf}, {kNan, -kInf}, &tolerance), Verdict::kUntrusted, Reason::kEmpty,
                "no element is finite");
}

TEST_CASE("integers are exact, whatever the tolerance file says") {
  const ToleranceFile generous = allowing(0.9);
  const std::vector<std::int64_t> tokens = {5, 0, 7}, shifted = {5, 0, 8}, zeros = {0, 0, 0};
  check_verdict(judged(tokens, tokens, &generous, Dtype::kInt64), Verdict::kPass, Reason::kNone, "same");
  CHECK(judged(zeros, zeros, &generous, Dtype::kInt64).verdict == Verdict::kPass);
  const Finding finding = judged(tokens, shifted, &generous, Dtype::kInt64);
  check_verdict(finding, Verdict::kFail, Reason::kIntegerDiffers,
                "1 of 3 elements differ; integers and bool must be equal; worst at [2]: reference 7, candidate 8, "
                "on rank 0");
  CHECK_FALSE(finding.allowed.has_value());
}

TEST_CASE("integers that fp64 cannot tell apart still differ") {
  const std::int64_t large = std::int64_t{1} << 60;
  const Finding finding = judged<std::int64_t>({large}, {large + 1}, nullptr, Dtype::kInt64);
  CHECK(finding.reason == Reason::kIntegerDiffers);
}

TEST_CASE("copies on several ranks that differ fail and name the ranks that disagree with the first") {
  Sides sides({2});
  sides.shards.add(sides.reference, bytes_of<float>({3, 4}), {.parts = {1}});
  sides.shards.add(sides.candidate, bytes_of<float>({3, 4}), {.parts = {1}});
  sides.shards.add(sides.candidate, bytes_of<float>({3, 4}), {.parts = {1}, .first_rank = 1, .replica = 1});
  sides.shards.add(sides.candidate, bytes_of<float>({3, 4.5}), {.parts = {1}, .first_rank = 2, .replica = 2});
  const ToleranceFile tight = allowing(0.01), loose = allowing(0.2);
  const Finding finding = sides.judged(&tight);
  check_verdict(finding, Verdict::kFail, Reason::kReplicasDisagree,
                "copies that must be equal differ by 0.0925 of their norm, allowed 0.01: rank 2 against the first");
  CHECK(finding.ranks == Ranks{2});
  CHECK(sides.judged(nullptr).reason == Reason::kReplicasDisagree);
  CHECK(sides.judged(&loose).verdict == Verdict::kPass);
  const ToleranceFile nothing;
  CHECK(sides.judged(&nothing).reason == Reason::kReplicasDisagree);
}

TEST_CASE(
    "copies of a parameter and its step are one value: what is allowed against the reference is not between them") {
  for (const Kind kind : {Kind::kParam, Kind::kParamAfter, Kind::kParamDelta, Kind::kMainGrad, Kind::kParamGrad}) {
    CAPTURE(name_of(kind));
    Sides sides({2});
    sides.reference.id.kind = sides.candidate.id.kind = kind;
    sides.shards.add(sides.reference, bytes_of<float>({3, 4}), {.parts = {1}});
    sides.shards.add(sides.candidate, bytes_of<float>({3, 4}), {.parts = {1}});
    sides.shards.add(sides.candidate, bytes_of<float>({3, 4.001F}), {.parts = {1}, .first_rank = 1, .replica = 1});
    ToleranceFile loose;
    loose.tensors[{kind, "mlp"}].allowed = 0.2;
    const Finding finding = sides.judged(&loose);
    const bool is_value = kind != Kind::kParamGrad;  // which may still be reduced
    CHECK(name_of(finding.reason) == name_of(is_value ? Reason::kReplicasDisagree : Reason::kNone));
  }
}

TEST_CASE("copies that differ without a measurable difference disagree, whatever is allowed") {
  Sides sides({2});
  sides.shards.add(sides.reference, bytes_of<float>({3, 4}), {.parts = {1}});
  sides.shards.add(sides.candidate, bytes_of<float>({3, 4}), {.parts = {1}});
  Difference difference = test::difference(sides.reference, sides.candidate);
  difference.replica_ranks = {5};
  const ToleranceFile loose = allowing(0.5);
  CHECK(judge({&sides.reference, &sides.candidate}, difference, &loose).reason == Reason::kReplicasDisagree);
}

TEST_CASE("copies of an integer tensor must be equal") {
  Sides sides({2}, Dtype::kInt64);
  sides.shards.add(sides.reference, bytes_of<std::int64_t>({1, 2}), {.parts = {1}});
  sides.shards.add(sides.candidate, bytes_of<std::int64_t>({1, 2}), {.parts = {1}});
  sides.shards.add(sides.candidate, bytes_of<std::int64_t>({1, 3}), {.parts = {1}, .first_rank = 1, .replica = 1});
  const ToleranceFile generous = allowing(0.9);
  const Finding finding = sides.judged(&generous);
  CHECK(finding.reason == Reason::kReplicasDisagree);
  CHECK(finding.ranks == Ranks{1});
}

TEST_CASE("a reference whose own copies disagree is said to be the reference's") {
  Sides sides({2});
  sides.shards.add(sides.reference, bytes_of<float>({3, 4}), {.parts = {1}});
  sides.shards.add(sides.reference, bytes_of<float>({3, 4.5}), {.parts = {1}, .first_rank = 1, .replica = 1});
  sides.shards.add(sides.candidate, bytes_of<float>({3, 4}), {.parts = {1}});
  const ToleranceFile tolerance = allowing(0.05);
  const Finding finding = sides.judged(&tolerance);
  check_verdict(finding, Verdict::kFail, Reason::kReplicasDisagree,
                "in the reference, copies that must be equal differ by 0.1 of their norm, allowed 0.05: rank 1 "
                "against the first");
  CHECK(finding.ranks.empty());
}

TEST_CASE("a failing tensor names the ranks whose shard is wrong") {
  Sides sides({4});
  sides.shards.add(sides.reference, bytes_of<float>({1, 2, 3, 4}), {.parts = {1}});
  sides.shards.add(sides.candidate, bytes_of<float>({1, 2, 9, 4}), {.parts = {4}, .first_rank = 4});
  const ToleranceFile tolerance = allowing(0.1);
  const Finding finding = sides.judged(&tolerance);
  CHECK(finding.ranks == Ranks{6});
  check_verdict(finding, Verdict::kFail, Reason::kExceedsTolerance,
                "rel_err 1.1, allowed 0.1 (11 times); worst at [2]: reference 3, candidate 9, on rank 6 at [0]");
}

TEST_CASE("ranks that hold an equal copy of the wrong shard are named too") {
  Sides sides({2});
  sides.shards.add(sides.reference, bytes_of<float>({3, 4}), {.parts = {1}});
  sides.shards.add(sides.candidate, bytes_of<float>({3, 8}), {.parts = {2}});
  sides.shards.add(sides.candidate, bytes_of<float>({3, 8}), {.parts = {2}, .first_rank = 2, .replica = 1});
  const Finding finding = sides.judged(nullptr);
  CHECK(finding.reason == Reason::kExceedsTolerance);
  CHECK(finding.ranks == Ranks{1, 3});
}

TEST_CASE("all ranks whose terms make up the wrong sum are named") {
  Sides sides({2});
  sides.shards.add(sides.reference, bytes_of<float>({3, 4}), {.parts = {1}});
  sides.shards.add(sides.candidate, bytes_of<float>({1, 2}), {.parts = {2}});
  sides.shards.add(sides.candidate, bytes_of<float>({2, 5}), {.parts = {2}, .first_rank = 2, .term = 1});
  const Finding finding = sides.judged(nullptr);
  CHECK(finding.ranks == Ranks{1, 3});
}

TEST_CASE("the ranks that hold the error are the fewest with 99 % of it") {
  Difference difference;
  CHECK(ranks_holding(difference).empty());
  difference.square_by_rank = {{0, 0.5}, {1, 0}, {2, 99.0}, {3, 0.5}};
  CHECK(ranks_holding(difference) == Ranks{2});
  difference.square_by_rank = {{0, 2}, {1, 49}, {2, 0}, {3, 49}};
  CHECK(ranks_holding(difference) == Ranks{0, 1, 3});
  difference.square_by_rank = {{0, 0}, {1, 0}};
  CHECK(ranks_holding(difference).empty());
}

TEST_CASE("an error that one factor explains says so") {
  const ToleranceFile tolerance = allowing(0.01);
  check_verdict(judged_floats({3, 4}, {6, 8}, &tolerance), Verdict::kFail, Reason::kExceedsTolerance,
                "rel_err 1, allowed 0.01 (100 times); worst at [1]: reference 4, candidate 8, on rank 0"
                "; looks like a factor of 2.000");
  const std::string of_others = judged_floats({3, 4}, {8, 6}, &tolerance).message;
  CHECK(of_others.find("factor") == std::string::npos);
}

TEST_CASE("a single number is a multiple of any other, which says nothing") {
  const ToleranceFile tolerance = allowing(0.01);
  check_verdict(judged_floats({2}, {4}, &tolerance), Verdict::kFail, Reason::kExceedsTolerance,
                "rel_err 1, allowed 0.01 (100 times); worst at [0]: reference 2, candidate 4, on rank 0");
}

TEST_CASE("a recomputed forward that is not the first forward says what it was held against") {
  Sides sides({2});
  sides.candidate.id.pass = Pass::kRecompute;
  sides.shards.add(sides.reference, bytes_of<float>({3, 4}), {.parts = {1}});
  sides.shards.add(sides.candidate, bytes_of<float>({3, 4.5}), {.parts = {1}});
  const Difference difference = test::difference(sides.reference, sides.candidate);
  const TensorPair pair{&sides.reference, &sides.candidate};
  const ToleranceFile tight = allowing(0.05), loose = allowing(0.2), nothing;
  const Finding finding = judge_recompute(pair, difference, &tight);
  CHECK(finding.verdict == Verdict::kFail);
  CHECK(name_of(finding.reason) == "recompute-differs");
  CHECK(finding.message ==
        "mlp output, iteration 0, micro-batch 0, recompute: rel_err 0.1, allowed 0.05 (2 times); worst at [1]: "
        "reference 4, candidate 4.5, on rank 0 (here the reference is the candidate's own first "
        "forward)");
  CHECK(judge_recompute(pair, difference, &loose).verdict == Verdict::kPass);
  CHECK(judge_recompute(pair, difference, &nothing).reason == Reason::kNoTolerance);
}
