// Tokens that went to other experts, of routers that choose among groups of experts, or by more than their logits.
#include <doctest/doctest.h>

#include <set>

#include "support/aligned.h"

using namespace ttrace;

namespace {

constexpr const char* kRules =
    "mlp:\n  input: {}\n"
    "mlp.router:logits:\n  output: {}\n"
    "mlp.router:scores:\n  optional: true\n  output: {}\n"
    "mlp.router:groups:\n  optional: true\n  output: {}\n"
    "experts.*:0:\n  input: {rows: {ids: 'experts.*:1', of: mlp, logits: 'mlp.router:logits', "
    "scores: 'mlp.router:scores', groups: 'mlp.router:groups'}}\n"
    "experts.*:1:\n  input: local\n";
constexpr std::int64_t kExperts = 4;

// One router's outputs for three tokens. The second always goes to the experts 0 and 1, the third to 2 and 3.
struct RecordedRouter {
  std::vector<float> logits;       // of the first token
  std::vector<float> scores = {};  // the same
  std::vector<std::int64_t> groups = {};

  Trace send_to(const std::set<std::int64_t>& experts) const {
    Trace trace = test::mesh_trace("", 1);
    test::add_tensor(trace, 0, test::tensor_id(Kind::kInput, "mlp", 0), {3, 2}, {1, 2, 3, 4, 5, 6});
    const auto add_output = [&](const std::string& name, std::vector<float> values) {
      values.insert(values.end(), {2, 1, 0, 0, 0, 0, 1, 2});
      test::add_tensor(trace, 0, test::tensor_id(Kind::kOutput, name, 0), {3, kExperts}, values);
    };
    add_output("mlp.router:logits", logits);
    if (!scores.empty()) add_output("mlp.router:scores", scores);
    if (!groups.empty())
      test::add_int64(trace, 0, test::tensor_id(Kind::kOutput, "mlp.router:groups", 0), {std::ssize(groups)}, groups);
    for (std::int64_t expert = 0; expert < kExperts; ++expert) {
      const std::string name = "mlp.experts." + std::to_string(expert);
      std::vector<float> rows;
      std::vector<std::int64_t> ids;  // rank and token
      if (experts.contains(expert)) {
        rows.insert(rows.end(), {1, 2});
        ids.insert(ids.end(), {0, 0});
      }
      const bool is_low = expert < 2;
      const float first = is_low ? 3 : 5;
      rows.insert(rows.end(), {first, first + 1});
      ids.insert(ids.end(), {0, is_low ? 1 : 2});
      const std::int64_t count = std::ssize(ids) / 2;
      test::add_tensor(trace, 0, test::tensor_id(Kind::kInput, name + ":0", 0), {count, 2}, rows);
      test::add_int64(trace, 0, test::tensor_id(Kind::kInput, name + ":1", 0), {count, 2}, ids);
    }
    return trace;
  }
};

Report judged(const Trace& reference, const Trace& candidate) {
  const Alignment a = align(reference, test::annotations(kRules), {});
  const Alignment b = align(candidate, test::annotations(kRules), layout_of(a));
  REQUIRE(a.findings.empty());
  const Matching matching = match(a, b);
  ToleranceFile file;
  for (const char* name : {"mlp", "mlp.router:logits", "mlp.router:scores"}) {
    for (const Kind kind : {Kind::kInput, Kind::kOutput}) file.tensors[{kind, name}].allowed = 0.01;
  }
  return judge_all(a, matching, compare(matching.pairs, {1, {}, false}), &file);
}

// The groups {0, 1} and {2, 3} nearly tie, by sums of 3 and of 2.98; no two of their experts do.
const RecordedRouter kGrouped{{2, 1, 2.9f, 0.08f}, {}, {2, 1, 2}};

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("a token that went to the experts of a group that nearly ties is re-routed by a near tie") {
  const Report report = judged(kGrouped.send_to({0, 1}), kGrouped.send_to({2, 3}));
  CHECK(test::findings_in(report).empty());
  CHECK(report.same());
}

TEST_CASE("a router that forgets the groups of experts is a failure") {
  const Report report = judged(kGrouped.send_to({0, 1}), kGrouped.send_to({0, 2}));
  CHECK(test::findings_in(report) == std::vector<std::string>{"mlp.router:logits output: routing-differs"});
  CHECK(report.findings[0].message.find("token 0 to 2 instead of 1") != std::string::npos);
}

TEST_CASE("a router with other groups than the reference's is a failure, whatever it says itself") {
  RecordedRouter other = kGrouped;
  other.groups = {2, 2, 1};
  const Report report = judged(kGrouped.send_to({0, 1}), other.send_to({0, 2}));
  CHECK(test::findings_in(report) == std::vector<std::string>{"mlp.router:logits output: routing-differs",
                                                              "mlp.router:groups output: integer-differs"});
}

TEST_CASE("where nobody speaks of groups, a choice that the highest logits do not explain is a failure") {
  RecordedRouter silent = kGrouped;
  for (const std::vector<std::int64_t>& groups :
       std::vector<std::vector<std::int64_t>>{{}, {2, 1}, {3, 1, 1}, {2, 3, 1}, {2, 1, 3}, {0, 0, 0}, {-2, 1, 2}}) {
    CAPTURE(groups.size());
    silent.groups = groups;
    CHECK(test::findings_in(judged(silent.send_to({0, 1}), silent.send_to({2, 3}))) ==
          std::vector<std::string>{"mlp.router:logits output: routing-differs"});
  }
}

TEST_CASE("a near tie of what a router makes of its logits, with the experts' bias, is one") {
  // By the logits expert 3 is far from expert 1; the bias brings it as high.
  const RecordedRouter biased{{2, 1, -1, -3}, {0.88f, 0.73f, 0.27f, 0.729f}};
  const Report near = judged(biased.send_to({0, 1}), biased.send_to({0, 3}));
  CHECK(test::findings_in(near).empty());
  CHECK(near.same());
  // A candidate that forgets the bias: by the scores it would be expert 3, by the logits 1.
  const RecordedRouter chosen_by_bias{{2, 1, -1, -3}, {0.88f, 0.73f, 0.27f, 1.05f}};
  CHECK(test::findings_in(judged(chosen_by_bias.send_to({0, 3}), chosen_by_bias.send_to({0, 1}))) ==
        std::vector<std::string>{"mlp.router:scores output: routing-differs"});
}

TEST_CASE("logits that are wrong by themselves are not explained by the token that they re-route") {
  RecordedRouter wrong = kGrouped;
  wrong.logits[3] = 0.5f;
  CHECK(test::findings_in(judged(kGrouped.send_to({0, 1}), wrong.send_to({2, 3}))) ==
        std::vector<std::string>{"mlp.router:logits output: exceeds-tolerance"});
}
