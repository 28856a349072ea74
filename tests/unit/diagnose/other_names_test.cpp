// What differs by its name alone is a question; what more than a name shows to be the same is a verdict.
#include "diagnose/other_names.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "diagnose/root_causes.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

struct Module {
  std::string name;
  float weight;  // begins with this
  float output = 1;
};

// One process: modules with a weight and an output, and the loss.
Trace program(const std::vector<Module>& modules, float loss) {
  Trace trace = mesh_trace("", 1);
  for (const Module& module : modules) {
    add_tensor(trace, 0, tensor_id(Kind::kParam, module.name + ".weight"), {2}, {module.weight, 1});
    add_tensor(trace, 0, tensor_id(Kind::kOutput, module.name, 0), {2}, {module.output, 2});
  }
  add_tensor(trace, 0, tensor_id(Kind::kScalar, "loss", 0), {}, {loss});
  return trace;
}

Report judged_by_name(const Trace& one, const Trace& two) {
  Report report = checked(one, two, "");
  const Alignment reference = align(one, {}, {}), candidate = align(two, {}, layout_of(reference));
  add_root_causes(report, {reference, candidate, two.mesh, {}});
  return report;
}

const Trace kReference = program({{"embed", 3}, {"layers.0", 4}, {"layers.1", 5}, {"head", 6}}, 2);

}  // namespace

TEST_SUITE_BEGIN("diagnose");

TEST_CASE("two sides that share hardly a name, and differ by names alone, are a question") {
  const Report report = judged_by_name(kReference, program({{"wte", 3}, {"h.0", 4}, {"h.1", 5}, {"lm_head", 6}}, 2));
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
  REQUIRE(report.explanation.questions.size() == 1);
  CHECK(has(report.explanation.questions[0].sentence, "1 of the reference's 9 names are among the candidate's 9"));
  for (const Finding& finding : report.findings) {
    CHECK(finding.reason == Reason::kOtherNames);
    CHECK(finding.verdict == Verdict::kMissing);
  }
}

TEST_CASE("a loss that differs is a verdict whatever the names are") {
  const Report report = judged_by_name(kReference, program({{"wte", 3}, {"h.0", 4}, {"h.1", 5}, {"lm_head", 6}}, 2.5F));
  CHECK(report.verdict() == RunVerdict::kDifferent);
  REQUIRE(report.first_wrong() != nullptr);
  CHECK(report.first_wrong()->id.name == "loss");
}

TEST_CASE("a module whose name the two share is the same where its parameters begin alike, and else in question") {
  for (const bool begins_alike : {true, false}) {
    CAPTURE(begins_alike);
    const Report report = judged_by_name(
        kReference, program({{"embed", begins_alike ? 3.0F : 9.0F, 7}, {"h.0", 4}, {"h.1", 5}, {"lm_head", 6}}, 2));
    CHECK((report.verdict() == RunVerdict::kDifferent) == begins_alike);
    if (begins_alike) CHECK(report.first_wrong()->id.name == "embed");
  }
}

TEST_CASE("a module that is missing from two programs with the same names is different") {
  const Report report = judged_by_name(kReference, program({{"embed", 3}, {"layers.0", 4}, {"head", 6}}, 2));
  CHECK(report.verdict() == RunVerdict::kDifferent);
  CHECK(report.explanation.questions.empty());
}

namespace {

// Two weights that no module has, which begin with `begins` and have these gradients.
Trace trained(const std::pair<float, float>& begins, const std::pair<float, float>& gradients) {
  Trace trace = program({{"embed", 3}}, 2);
  add_tensor(trace, 0, tensor_id(Kind::kParam, "(optimizer).0"), {1}, {begins.first});
  add_tensor(trace, 0, tensor_id(Kind::kParam, "(optimizer).1"), {1}, {begins.second});
  add_tensor(trace, 0, tensor_id(Kind::kMainGrad, "(optimizer).0"), {1}, {gradients.first});
  add_tensor(trace, 0, tensor_id(Kind::kMainGrad, "(optimizer).1"), {1}, {gradients.second});
  return trace;
}

}  // namespace

TEST_CASE("of tensors of no module that begin alike, those that have each other's values are a question") {
  const Trace reference = trained({0, 0}, {3, 4});
  const Report turned = judged_by_name(reference, trained({0, 0}, {4, 3}));
  CHECK(turned.verdict() == RunVerdict::kCouldNotLook);
  REQUIRE(turned.explanation.questions.size() == 1);
  CHECK(has(turned.explanation.questions[0].sentence, "it has the values of the reference's (optimizer).1"));
  CHECK(judged_by_name(reference, trained({0, 0}, {4, 5})).verdict() == RunVerdict::kDifferent);
  // Those that begin with values of their own are who they are.
  CHECK(judged_by_name(trained({1, 2}, {3, 4}), trained({1, 2}, {4, 3})).verdict() == RunVerdict::kDifferent);
}
