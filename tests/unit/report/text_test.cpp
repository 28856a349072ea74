#include <doctest/doctest.h>

#include "report/render.h"
#include "support/aligned.h"
#include "support/reports.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("report");

TEST_CASE("two equal runs are the same, in one line and the counts") {
  CHECK(to_text(report_of({}, 3), {10}) == "same\n3 compared: 3 pass, 0 fail, 0 untrusted; 0 missing\n");
}

TEST_CASE("a difference names the first wrong tensor and lists all findings") {
  Report report = report_of({wrong("mlp"), missing("norm"), untrusted("w")}, 2);
  report.notes = {"a note"};
  report.totals.waived = 4;
  CHECK(to_text(report, {10}) == R"(different
first wrong tensor: mlp output, iteration 0, micro-batch 1
  rel_err 0.1, allowed 0.05

findings, wrong ones first, in order of execution:
  verdict    reason                rel_err  allowed  ratio  ranks  tensor
  fail       exceeds-tolerance     0.1      0.05     2      0-1,3  mlp output, iteration 0, micro-batch 1
  missing    missing-in-candidate  -        -        -      -      norm output, iteration 0, micro-batch 1: not in the candidate; the reference has float32 [2]
  untrusted  all-zero              -        -        -      -      w param_grad, iteration 0, micro-batch 0: zero on both sides

note: a note

4 compared: 2 pass, 1 fail, 1 untrusted; 1 missing, 4 waived
)");
}

TEST_CASE("a missing tensor can be the first finding, and so can a rank") {
  CHECK(to_text(report_of({missing("norm")}, 1), {0}) == R"(different
first missing tensor: norm output, iteration 0, micro-batch 1
  not in the candidate; the reference has float32 [2]

  ... and 1 more: ttrace check --all

1 compared: 1 pass, 0 fail, 0 untrusted; 1 missing
)");
  CHECK(to_text(report_of({missing_rank()}, 1), {10}) == R"(could-not-look: the candidate is not whole
first: rank 2 has no file

findings, wrong ones first, in order of execution:
  verdict  reason        rel_err  allowed  ratio  ranks  tensor
  missing  missing-rank  -        -        -      2      rank 2 has no file

1 compared: 1 pass, 0 fail, 0 untrusted; 1 missing
)");
}

TEST_CASE("more findings than asked for are counted, with the command that prints them") {
  const std::string text = to_text(report_of({wrong("a"), wrong("b"), wrong("c")}, 1), {1});
  CHECK(text == R"(different
first wrong tensor: a output, iteration 0, micro-batch 1
  rel_err 0.1, allowed 0.05

findings, wrong ones first, in order of execution:
  verdict  reason             rel_err  allowed  ratio  ranks  tensor
  fail     exceeds-tolerance  0.1      0.05     2      0-1,3  a output, iteration 0, micro-batch 1
  ... and 2 more: ttrace check --all

4 compared: 1 pass, 3 fail, 0 untrusted; 0 missing
)");
}

TEST_CASE("wrong tensors have the first rows, and what was not seen the last") {
  const Finding hidden = finding(tensor_id(Kind::kOutput, "hidden", 0), Verdict::kNotSeen, Reason::kNotSeenInCandidate,
                                 "not seen in the candidate: compiled");
  const std::string text = to_text(report_of({hidden, untrusted("w"), wrong("mlp")}, 1), {2});
  CHECK(text.find("  fail       exceeds-tolerance") < text.find("  untrusted  all-zero"));
  CHECK(text.find("hidden") == text.npos);
  CHECK(text.ends_with("3 compared: 1 pass, 1 fail, 1 untrusted; 0 missing, 1 not seen\n"));
}

TEST_CASE("an untrusted tensor alone is no difference, unless the check is strict") {
  Report report = report_of({untrusted("w")}, 1);
  const std::string table = R"(
findings, wrong ones first, in order of execution:
  verdict    reason    rel_err  allowed  ratio  ranks  tensor
  untrusted  all-zero  -        -        -      -      w param_grad, iteration 0, micro-batch 0: zero on both sides

2 compared: 1 pass, 0 fail, 1 untrusted; 0 missing
)";
  CHECK(report.same());
  CHECK(to_text(report, {10}) == "same\n" + table);
  report.strict = true;
  CHECK_FALSE(report.same());
  CHECK(to_text(report, {10}) == "different: untrusted tensors count as failed (--strict)\n" + table);
}

TEST_CASE("a difference that nobody says is allowed is not the same") {
  Report report = report_of({untrusted("w")}, 1);
  report.findings[0].reason = Reason::kNoTolerance;
  CHECK_FALSE(report.same());
  CHECK(to_text(report, {10}).starts_with("different: the tolerance file does not list a tensor that differs\n"));
}

TEST_CASE("a check that trusted nothing, or compared nothing, is no success") {
  const Report untrusted_only = report_of({untrusted("w")}, 0);
  CHECK_FALSE(untrusted_only.same());
  CHECK(to_text(untrusted_only, {10}).starts_with("could-not-look: nothing trusted was compared\n\n"));
  const Report nothing = report_of({}, 0);
  CHECK_FALSE(nothing.same());
  CHECK(to_text(nothing, {10}) ==
        "could-not-look: nothing could be compared\n0 compared: 0 pass, 0 fail, 0 untrusted; 0 missing\n");
}

TEST_CASE("counts and findings must both say same") {
  CHECK(report_of({}, 1).same());
  for (const Verdict verdict : {Verdict::kFail, Verdict::kMissing}) {
    Report counted = report_of({}, 1);
    counted.totals.counts.add(verdict);
    CHECK_FALSE(counted.same());
  }
  Report listed = report_of({}, 1);
  listed.findings = {wrong("mlp")};
  CHECK_FALSE(listed.same());
}

TEST_CASE("a missing micro-batch is one line, whatever number of tensors it has") {
  Report report = report_of({missing("a"), missing("b"), wrong("c")}, 1);
  report.totals.missing_groups = {{Reason::kMissingInCandidate, 0, 1, 2}};
  CHECK(to_text(report, {10}) == R"(different
first missing: all of micro-batch 1 of iteration 0 (2 tensors): not in the candidate

findings, wrong ones first, in order of execution:
  verdict  reason                rel_err  allowed  ratio  ranks  tensor
  missing  missing-in-candidate  -        -        -      -      all of micro-batch 1 of iteration 0 (2 tensors): not in the candidate
  fail     exceeds-tolerance     0.1      0.05     2      0-1,3  c output, iteration 0, micro-batch 1

2 compared: 1 pass, 1 fail, 0 untrusted; 2 missing
)");
}

TEST_CASE("many ranks are shortened") {
  Finding finding = wrong("mlp");
  finding.ranks = {0, 2, 3, 5, 7, 9};
  CHECK(to_text(report_of({finding}, 1), {10}).find(" 0,2-3,5,7,...  mlp output") != std::string::npos);
}

TEST_CASE("control characters of names, messages and notes never reach the terminal") {
  const std::string name = "m\x1b[2J\n\xc2\x9b\xe2\x80\xae\xff\x7f";
  Report report = report_of({wrong(name), missing(name)}, 1);
  report.findings[1].message = name;
  report.notes = {name};
  report.advice.all_findings = "ttrace check " + name;
  const std::string text = to_text(report, {1}) + to_text(report, {2});
  for (const char c : text) CHECK((c == '\n' || (c >= 0x20 && c < 0x7f)));
  CHECK(text.find("note: m\\x1b[2J\\x0a\\xc2\\x9b\\xe2\\x80\\xae\\xff\\x7f\n") != std::string::npos);
}

TEST_CASE("the summary groups wrong tensors by modules, with the layers that are wrong") {
  std::vector<Finding> findings;
  for (const char* const layer : {"0", "1", "2", "5"}) {
    findings.push_back(wrong(std::string("decoder.layers.") + layer + ".mlp.fc1"));
    findings.push_back(wrong(std::string("decoder.layers.") + layer + ".mlp.fc2"));
  }
  findings.push_back(missing("decoder.norm.inner.deep"));
  findings.push_back(untrusted("head.weight"));
  Report report = report_of(findings, 1);
  report.totals.by_name[{"decoder.layers.3.mlp.fc1", Kind::kOutput}].add(Verdict::kPass);
  report.advice.next = "ttrace check --html report.html";
  CHECK(to_text(report, {}) == R"(different
first wrong tensor: decoder.layers.0.mlp.fc1 output, iteration 0, micro-batch 1
  rel_err 0.1, allowed 0.05

wrong tensors by module, in order of execution (--all lists them):
  wrong  of  ratio  module                    kinds
      8   9      2  decoder.layers.0-2,5.mlp  output
      1   1      -  decoder.norm              output (missing)

untrusted: 1 all-zero: head.weight param_grad, iteration 0, micro-batch 0

next: ttrace check --html report.html

10 compared: 1 pass, 8 fail, 1 untrusted; 1 missing
)");
}

TEST_CASE("the summary has three root causes, and the list of findings all that were looked into") {
  Report report = report_of({wrong("a"), wrong("b"), wrong("c"), wrong("d")}, 1);
  for (std::size_t i = 0; i < 4; ++i) {
    RootCause& root = report.explanation.roots.emplace_back();
    root.finding = i;
    root.sentence = report.findings[i].id.name.get() + " is wrong.";
    root.examined = true;
  }
  report.explanation.roots[1].source.call = CodeLine{"model.py", 106};
  report.explanation.roots[2].apart = Apart::kSourcesAgree;
  std::string summary = to_text(report, {});
  CHECK_MESSAGE(has(summary,
                    "cause: a is wrong.\nalso wrong; what it was computed from was not compared:\n  b is wrong.\n    "
                    "called at model.py:106\nalso wrong, though what it was computed from agrees:\n  c is wrong.\n  "
                    "... and 1 more\n"),
                summary);
  report.explanation.roots[1].apart = Apart::kByItself;
  report.explanation.roots[2].standing = Standing::kFound;
  summary = to_text(report, {});
  CHECK_MESSAGE(has(summary, "also wrong, and not because of it:\n  b is wrong.\n"), summary);
  CHECK_MESSAGE(has(summary, "model.py:106\n  (found) c is wrong.\n"), summary);
  CHECK(to_text(report, {10}).find("  d is wrong.\n\nfindings,") != std::string::npos);
}

TEST_CASE("a quiet report is one line") {
  Report report = report_of({wrong("a")}, 1);
  report.explanation.roots.emplace_back().sentence = "a is wrong.";
  TextOptions quiet;
  quiet.quiet = true;
  CHECK(to_text(report, quiet) == "different: a is wrong.\n");
  CHECK(to_text(report_of({}, 1), quiet) == "same\n");
  CHECK(to_text(report_of({}, 0), quiet) == "could-not-look: nothing could be compared\n");
}

TEST_CASE("a report fits a terminal, and says no more in colours than without") {
  Report report = report_of({wrong("decoder.layers.0.self_attention.core_attention.linear_qkv")}, 1);
  report.notes = {"a note of more words than there are columns in the terminal that it is shown on"};
  TextOptions narrow;
  narrow.style.width = 60;
  const std::string text = to_text(report, narrow);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    CHECK(end - begin <= 60);
    begin = end + 1;
  }
  narrow.style.color = true;
  std::string colored = to_text(report, narrow);
  CHECK(colored.starts_with("\x1b[1m\x1b[31mdifferent\x1b[0m\n"));
  for (std::size_t at = colored.find('\x1b'); at != colored.npos; at = colored.find('\x1b', at)) {
    colored.erase(at, colored.find('m', at) + 1 - at);
  }
  CHECK(colored == text);
}
