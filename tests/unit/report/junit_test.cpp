#include "report/junit.h"

#include <doctest/doctest.h>

#include "support/reports.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

const std::string kHead = "<?xml version=\"1.0\"?>\n<testsuites>\n";

std::string to_junit(const Report& report) { return to_junit(report, SuiteFacts()); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_SUITE_BEGIN("report");

TEST_CASE("each name and kind that was compared is a passing test case") {
  Report report = report_of({}, 2);
  report.totals.by_name[{"mlp", Kind::kGradInput}].add(Verdict::kPass);
  CHECK(to_junit(report) == kHead + R"(  <testsuite name="ttrace check" tests="2" failures="0" errors="0" skipped="0">
    <testcase classname="grad_input" name="mlp" />
    <testcase classname="output" name="same" />
  </testsuite>
</testsuites>
)");
}

TEST_CASE("failed and missing tensors fail their case, untrusted ones skip it") {
  Finding later = wrong("mlp");
  later.message = "mlp output, iteration 1, micro-batch 0: later";
  CHECK(to_junit(report_of({missing_rank(), wrong("mlp"), missing("norm"), untrusted("w"), later}, 1)) ==
        kHead + R"(  <testsuite name="ttrace check" tests="5" failures="3" errors="0" skipped="1">
    <testcase classname="ranks" name="ranks">
      <failure message="rank 2 has no file" type="missing-rank">rank 2 has no file
</failure>
    </testcase>
    <testcase classname="output" name="mlp">
      <failure message="mlp output, iteration 0, micro-batch 1: rel_err 0.1, allowed 0.05" type="exceeds-tolerance">mlp output, iteration 0, micro-batch 1: rel_err 0.1, allowed 0.05
mlp output, iteration 1, micro-batch 0: later
</failure>
    </testcase>
    <testcase classname="output" name="norm">
      <failure message="norm output, iteration 0, micro-batch 1: not in the candidate; the reference has float32 [2]" type="missing-in-candidate">norm output, iteration 0, micro-batch 1: not in the candidate; the reference has float32 [2]
</failure>
    </testcase>
    <testcase classname="output" name="same" />
    <testcase classname="param_grad" name="w">
      <skipped message="w param_grad, iteration 0, micro-batch 0: zero on both sides" type="all-zero">w param_grad, iteration 0, micro-batch 0: zero on both sides
</skipped>
    </testcase>
  </testsuite>
</testsuites>
)");
}

TEST_CASE("what follows from a root cause is skipped behind it, and is no red test") {
  Report report = report_of({wrong("z.root"), wrong("a.later"), wrong("b.other")}, 1);
  RootCause& root = report.explanation.roots.emplace_back();
  root.sentence = "z.root, output: the ranks hold unsummed partial values";
  SuiteFacts facts;
  facts.follows_from = {0, 0, 2};
  facts.properties = {{"candidate.axes", "tp=2"}};
  facts.timestamp = "2026-11-22T10:00:00Z";
  facts.text = "different\nfirst <wrong> tensor\n";
  CHECK(
      to_junit(report, facts) ==
      kHead +
          R"(  <testsuite name="ttrace check" tests="4" failures="2" errors="0" skipped="1" timestamp="2026-11-22T10:00:00Z">
    <properties>
      <property name="candidate.axes" value="tp=2" />
    </properties>
    <testcase classname="output" name="z.root">
      <failure message="z.root, output: the ranks hold unsummed partial values" type="exceeds-tolerance">z.root output, iteration 0, micro-batch 1: rel_err 0.1, allowed 0.05
</failure>
    </testcase>
    <testcase classname="output" name="b.other">
      <failure message="b.other output, iteration 0, micro-batch 1: rel_err 0.1, allowed 0.05" type="exceeds-tolerance">b.other output, iteration 0, micro-batch 1: rel_err 0.1, allowed 0.05
</failure>
    </testcase>
    <testcase classname="output" name="a.later">
      <skipped message="follows from z.root output, iteration 0, micro-batch 1" type="exceeds-tolerance">a.later output, iteration 0, micro-batch 1: rel_err 0.1, allowed 0.05
</skipped>
    </testcase>
    <testcase classname="output" name="same" />
    <system-out>different
first &lt;wrong&gt; tensor
</system-out>
  </testsuite>
</testsuites>
)");
}

TEST_CASE("a strict check fails the untrusted cases") {
  Report report = report_of({untrusted("w")}, 1);
  CHECK(contains(to_junit(report), R"(tests="2" failures="0" errors="0" skipped="1")"));
  report.strict = true;
  CHECK(contains(to_junit(report), R"(tests="2" failures="1" errors="0" skipped="0")"));
  CHECK(contains(to_junit(report), "<failure message="));
}

TEST_CASE("a check that trusted nothing has a failure of its own") {
  for (const Report& report : {report_of({untrusted("w")}, 0), report_of({}, 0)}) {
    CHECK(contains(to_junit(report), R"(failures="1")"));
    CHECK(contains(to_junit(report), R"(<failure message="could-not-look: nothing )"));
  }
}

TEST_CASE("a name that is hostile to XML is escaped") {
  const std::string text = to_junit(report_of({wrong("<m a=\"1\">&]]>\x1b\n\xff\xef\xbf\xbe")}, 1));
  CHECK(contains(
      text, "<testcase classname=\"output\" name=\"&lt;m a=&quot;1&quot;>&amp;]]>\\x1b\\x0a\\xff\\xef\\xbf\\xbe\">"));
  for (const char c : text) CHECK((c == '\n' || (c >= 0x20 && c < 0x7f)));
}
