#include "judge/unmeasured_steps.h"

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
  CHECK(doubt_unmeasured_steps(findings, {}, doubts) == std::vector<std::string>{"#.weight"});
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
  CHECK(doubt_unmeasured_steps(findings, {update}, doubts) == std::vector<std::string>{"#.weight"});
}
