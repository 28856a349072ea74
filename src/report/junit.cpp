#include "report/junit.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "report/proof.h"
#include "ttrace/report/render.h"

namespace ttrace {
namespace {

using CaseKey = std::pair<std::string, Kind>;

void set_attribute(pugi::xml_node node, const char* name, std::string_view value) {
  node.append_attribute(name).set_value(printable(value).c_str());
}

// The findings about the tensors of one test case, in execution order.
struct Case {
  std::vector<const Finding*> failures, doubts;
  std::vector<const WaivedFinding*> waived;
};

void write_outcome(pugi::xml_node node, const char* element, const std::vector<const Finding*>& findings) {
  pugi::xml_node outcome = node.append_child(element);
  set_attribute(outcome, "message", findings[0]->message);
  set_attribute(outcome, "type", name_of(findings[0]->reason));
  std::string lines;
  for (const Finding* finding : findings) lines += printable(finding->message) + "\n";
  outcome.append_child(pugi::node_pcdata).set_value(lines.c_str());
}

void write_case(pugi::xml_node suite, std::string_view name, std::string_view group, const Case& outcome) {
  pugi::xml_node node = suite.append_child("testcase");
  set_attribute(node, "classname", group);
  set_attribute(node, "name", name);
  if (!outcome.failures.empty()) {
    write_outcome(node, "failure", outcome.failures);
  } else if (!outcome.doubts.empty()) {
    write_outcome(node, "skipped", outcome.doubts);
  } else if (!outcome.waived.empty()) {
    const Waiver& waiver = outcome.waived[0]->waiver;
    set_attribute(
        node.append_child("skipped"), "message",
        fmt::format("waived until {}: {}; {}", waiver.expires, waiver.reason, outcome.waived[0]->finding.message));
  }
}

// What the cases do not say: coverage of proof, and what overrides excuse.
void write_properties(pugi::xml_node suite, const Report& report) {
  if (!report.proofs && report.overrides.empty()) return;
  pugi::xml_node properties = suite.append_child("properties");
  const auto add = [&](const char* name, const std::string& value) {
    pugi::xml_node property = properties.append_child("property");
    set_attribute(property, "name", name);
    set_attribute(property, "value", value);
  };
  if (report.proofs) add("proof", describe_proof(*report.proofs));
  for (const OverrideUse& use : report.overrides) add("override", describe(use));
}

// All test cases of a report.
struct Suite {
  std::map<CaseKey, Case> cases;
  std::vector<const Finding*> about_ranks;  // a case of their own
  std::string open;                         // a failure, so that there is one whenever the verdict is not `same`

  std::int64_t tests() const { return std::ssize(cases) + !about_ranks.empty() + !open.empty(); }
  std::int64_t failures() const {
    return std::count_if(cases.begin(), cases.end(), [](const auto& item) { return !item.second.failures.empty(); }) +
           !about_ranks.empty() + !open.empty();
  }
  std::int64_t skipped() const {
    return std::count_if(cases.begin(), cases.end(), [](const auto& item) {
      return item.second.failures.empty() && (!item.second.doubts.empty() || !item.second.waived.empty());
    });
  }
};

Suite sort_into_cases(const Report& report) {
  Suite suite;
  for (const auto& [key, counts] : report.by_name) suite.cases.emplace(key, Case());
  for (const WaivedFinding& waived : report.waived_findings) {
    suite.cases[{waived.finding.id.name, waived.finding.id.kind}].waived.push_back(&waived);
  }
  for (const Finding& finding : report.findings) {
    if (finding.id.name.empty()) {
      suite.about_ranks.push_back(&finding);
      continue;
    }
    Case& outcome = suite.cases[{finding.id.name, finding.id.kind}];
    // A finding that keeps the verdict from being `same` is a failure.
    const bool doubt = finding.verdict == Verdict::kNotSeen ||
                       (finding.verdict == Verdict::kUntrusted && finding.reason != Reason::kNoTolerance);
    (doubt && !report.strict ? outcome.doubts : outcome.failures).push_back(&finding);
  }
  if (!report.same() && suite.failures() == 0) suite.open = sentence_of(report);
  return suite;
}

}  // namespace

void append_suite(pugi::xml_node suites, std::string_view name, std::string_view group, const Report& report) {
  const Suite suite = sort_into_cases(report);
  pugi::xml_node node = suites.append_child("testsuite");
  set_attribute(node, "name", name);
  node.append_attribute("tests").set_value(static_cast<long long>(suite.tests()));
  node.append_attribute("failures").set_value(static_cast<long long>(suite.failures()));
  node.append_attribute("skipped").set_value(static_cast<long long>(suite.skipped()));
  write_properties(node, report);
  if (!suite.about_ranks.empty()) {
    write_case(node, "ranks", fmt::format("{}ranks", group), {suite.about_ranks, {}, {}});
  }
  if (!suite.open.empty()) {
    Finding open;
    open.message = suite.open;
    write_case(node, "verdict", fmt::format("{}verdict", group), {{&open}, {}, {}});
  }
  for (const auto& [key, outcome] : suite.cases) {
    write_case(node, key.first, fmt::format("{}{}", group, name_of(key.second)), outcome);
  }
}

void append_error_suite(pugi::xml_node suites, std::string_view name, const std::string& problem) {
  pugi::xml_node suite = suites.append_child("testsuite");
  set_attribute(suite, "name", name);
  set_attribute(suite, "tests", "1");
  set_attribute(suite, "errors", "1");
  pugi::xml_node node = suite.append_child("testcase");
  set_attribute(node, "classname", name);
  set_attribute(node, "name", "looked at");
  set_attribute(node.append_child("error"), "message", problem);
}

std::string to_text(const pugi::xml_document& document) {
  std::ostringstream stream;
  document.save(stream, "  ");
  return stream.str();
}

std::string to_junit(const Report& report) {
  pugi::xml_document document;
  append_suite(document.append_child("testsuites"), "ttrace check", "", report);
  return to_text(document);
}

}  // namespace ttrace
