#include "judge/unproved_steps.h"

#include <doctest/doctest.h>

#include "support/mesh_trace.h"

using namespace ttrace;

namespace {

Finding after(const std::string& name, double difference_square) {
  Finding finding;
  finding.id = test::tensor_id(Kind::kParamAfter, name, kNoMicrobatch);
  finding.difference.emplace().difference_square = difference_square;
  return finding;
}

std::map<TensorId, std::string> doubts_of(const std::vector<Finding>& findings, const std::string& of_updates) {
  std::map<TensorId, std::string> doubts;
  for (const Finding& finding : findings) {
    doubts[finding.id] = "";
    doubts[finding.id.with_kind(Kind::kParamDelta)] = of_updates;
  }
  return doubts;
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("a parameter that differs after a step that is noise proves nothing of it") {
  const std::vector<Finding> findings = {after("0.weight", 1), after("1.weight", 1), after("bias", 0)};
  std::map<TensorId, std::string> doubts = doubts_of(findings, "noise");
  CHECK(doubt_unmeasured_steps(findings, {}, doubts) == std::set<std::string>{"#.weight"});
  CHECK(doubts.at(findings[0].id) == "noise");
  CHECK(doubts.at(findings[2].id) == "");  // equal to the bit
}

TEST_CASE("one proved step speaks for its family, but for no update that nothing holds") {
  const std::vector<Finding> findings = {after("0.weight", 1), after("1.weight", 1)};
  std::map<TensorId, std::string> doubts = doubts_of(findings, "noise");
  const TensorId update = findings[0].id.with_kind(Kind::kParamDelta);
  doubts[update] = "";
  CHECK(doubt_unmeasured_steps(findings, {}, doubts).empty());
  CHECK(doubts.at(findings[0].id) == "");
  CHECK(doubt_unmeasured_steps(findings, {update}, doubts) == std::set<std::string>{"#.weight"});
}

TEST_CASE("a step with other tensors is proved where the parameter after it is held to less than it changed") {
  Finding weight = after("0.weight", 1), bias = after("0.bias", 1);
  for (Finding* finding : {&weight, &bias}) {
    finding->verdict = Verdict::kPass;
    finding->allowed = 0.01;
    finding->difference->reference_square = 100;
  }
  const std::map<TensorId, double> elsewhere = {{weight.id.with_kind(Kind::kParamDelta), 0.04},
                                                {bias.id.with_kind(Kind::kParamDelta), 0.0025}};
  std::map<TensorId, std::string> doubts = {{weight.id, ""}, {bias.id, ""}};
  const auto unproved = [&] { return find_steps_unseen_elsewhere(std::vector{weight, bias}, elsewhere, doubts); };
  CHECK(unproved() == std::set<std::string>{"#.bias"});
  doubts[weight.id] = "noise";
  CHECK(unproved() == std::set<std::string>{"#.bias", "#.weight"});
  doubts[weight.id] = "";
  bias.allowed = 0;  // equal to the bit
  CHECK(unproved().empty());
}
