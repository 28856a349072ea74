#include "report/junit.h"

#include <fmt/format.h>

#include <algorithm>
#include <pugixml.hpp>
#include <sstream>

#include "report/proof.h"
#include "report/render.h"

namespace ttrace {
namespace {

using CaseKey = std::pair<std::string, Kind>;

void set_attribute(pugi::xml_node node, const char* name, std::string_view value) {
  node.append_attribute(name).set_value(printable(value).c_str());
}

void set_attribute(pugi::xml_node node, const char* name, std::int64_t value) {
  node.append_attribute(name).set_value(static_cast<long long>(value));
}

// Lines of text, each escaped by itself.
void set_text(pugi::xml_node node, const std::string& text) {
  std::istringstream lines(text);
  std::string escaped;
  for (std::string line; std::getline(lines, line);) escaped += printable(line) + "\n";
  node.append_child(pugi::node_pcdata).set_value(escaped.c_str());
}

// The findings about the tensors of one test case, in execution order.
struct Case {
  std::vector<const Finding*> failures, doubts;
  std::vector<const WaivedFinding*> waived;
  std::size_t root = SIZE_MAX;     // the place of the first root cause among the report's; SIZE_MAX: none is its own
  const Finding* cause = nullptr;  // what all failures follow from; null where one is a cause itself
};

void write_outcome(pugi::xml_node node, const char* element, const std::string& message,
                   const std::vector<const Finding*>& findings) {
  pugi::xml_node outcome = node.append_child(element);
  set_attribute(outcome, "message", message);
  set_attribute(outcome, "type", name_of(findings[0]->reason));
  std::string lines;
  for (const Finding* finding : findings) lines += finding->message + "\n";
  set_text(outcome, lines);
}

pugi::xml_node append_case(pugi::xml_node suite, std::string_view name, std::string_view group) {
  pugi::xml_node node = suite.append_child("testcase");
  set_attribute(node, "classname", group);
  set_attribute(node, "name", name);
  return node;
}

void write_case(pugi::xml_node node, const Report& report, const Case& outcome) {
  if (!outcome.failures.empty() && outcome.cause != nullptr) {
    write_outcome(node, "skipped", fmt::format("follows from {}", to_string(outcome.cause->id)), outcome.failures);
  } else if (!outcome.failures.empty()) {
    const bool is_root = outcome.root < report.explanation.roots.size();
    write_outcome(node, "failure",
                  is_root ? report.explanation.roots[outcome.root].sentence : outcome.failures[0]->message,
                  outcome.failures);
  } else if (!outcome.doubts.empty()) {
    write_outcome(node, "skipped", outcome.doubts[0]->message, outcome.doubts);
  } else if (!outcome.waived.empty()) {
    const Waiver& waiver = outcome.waived[0]->waiver;
    set_attribute(
        node.append_child("skipped"), "message",
        fmt::format("waived until {}: {}; {}", waiver.expires, waiver.reason, outcome.waived[0]->finding.message));
  }
}

// Writes what the cases do not say: the runs, coverage of proof, and what overrides excuse.
void write_properties(pugi::xml_node suite, const Report& report, const SuiteFacts& facts) {
  std::vector<std::pair<std::string, std::string>> all = facts.properties;
  if (report.proof.by_kind) all.emplace_back("proof", describe_proof(*report.proof.by_kind));
  if (report.runs.sketched) all.emplace_back("sketched", *report.runs.sketched);
  if (report.proof.unmeasured) all.emplace_back("unmeasured", *report.proof.unmeasured);
  if (report.proof.margin) all.emplace_back("margin", fmt::format("{}", *report.proof.margin));
  for (const OverrideUse& use : report.proof.overrides) all.emplace_back("override", describe(use));
  if (all.empty()) return;
  pugi::xml_node properties = suite.append_child("properties");
  for (const auto& [name, value] : all) {
    pugi::xml_node property = properties.append_child("property");
    set_attribute(property, "name", name);
    set_attribute(property, "value", value);
  }
}

// All test cases of a report.
struct Suite {
  std::map<CaseKey, Case> cases;
  std::vector<const Finding*> about_ranks;  // a case of their own
  std::string open;                         // a failure, so that there is one whenever the verdict is not `same`

  std::int64_t tests() const { return std::ssize(cases) + !about_ranks.empty() + !open.empty(); }
  std::int64_t failures() const {
    return count([](const Case& one) { return !one.failures.empty() && one.cause == nullptr; }) + !about_ranks.empty() +
           !open.empty();
  }
  std::int64_t skipped() const {
    return count([](const Case& one) {
      return one.failures.empty() ? !one.doubts.empty() || !one.waived.empty() : one.cause != nullptr;
    });
  }

 private:
  template <typename Is>
  std::int64_t count(Is is) const {
    return std::count_if(cases.begin(), cases.end(), [&](const auto& item) { return is(item.second); });
  }
};

// Notes for each case whether it is wrong by itself.
void find_causes(const Report& report, const SuiteFacts& facts, Suite& suite) {
  for (std::size_t i = 0; i < report.explanation.roots.size(); ++i) {
    const TensorId& id = report.findings[report.explanation.roots[i].finding].id;
    std::size_t& root = suite.cases[{id.name, id.kind}].root;
    root = std::min(root, i);
  }
  for (auto& [key, outcome] : suite.cases) {
    if (outcome.root < report.explanation.roots.size()) continue;
    for (const Finding* finding : outcome.failures) {
      const auto index = static_cast<std::size_t>(finding - report.findings.data());
      const auto origin = index < facts.follows_from.size() ? facts.follows_from[index] : std::nullopt;
      const Finding* cause = origin ? &report.findings[*origin] : nullptr;
      if (cause == nullptr || CaseKey(cause->id.name, cause->id.kind) == key) {
        outcome.cause = nullptr;
        break;
      }
      if (outcome.cause == nullptr) outcome.cause = cause;
    }
  }
}

Suite sort_into_cases(const Report& report, const SuiteFacts& facts) {
  Suite suite;
  for (const auto& [key, counts] : report.totals.by_name) suite.cases.emplace(key, Case());
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
  find_causes(report, facts, suite);
  if (!report.same() && suite.failures() == 0) suite.open = sentence_of(report);
  return suite;
}

// The cases as they are written: the root causes, then what else is wrong by itself, then all others by name.
std::vector<const std::pair<const CaseKey, Case>*> in_order(const Suite& suite) {
  std::vector<const std::pair<const CaseKey, Case>*> cases;
  for (const auto& item : suite.cases) cases.push_back(&item);
  const auto rank = [](const Case& one) {
    const bool is_wrong = !one.failures.empty() && one.cause == nullptr;
    return std::pair(!is_wrong, is_wrong ? one.root : 0);
  };
  std::stable_sort(cases.begin(), cases.end(),
                   [&](const auto* a, const auto* b) { return rank(a->second) < rank(b->second); });
  return cases;
}

// `group` is a prefix of the cases' class names, as in `tp2.output`, or empty.
void append_suite(pugi::xml_node suites, std::string_view name, std::string_view group, const Report& report,
                  const SuiteFacts& facts) {
  const Suite suite = sort_into_cases(report, facts);
  pugi::xml_node node = suites.append_child("testsuite");
  set_attribute(node, "name", name);
  set_attribute(node, "tests", suite.tests());
  set_attribute(node, "failures", suite.failures());
  set_attribute(node, "errors", std::int64_t{0});
  set_attribute(node, "skipped", suite.skipped());
  if (!facts.timestamp.empty()) set_attribute(node, "timestamp", facts.timestamp);
  write_properties(node, report, facts);
  if (!suite.about_ranks.empty()) {
    write_outcome(append_case(node, "ranks", fmt::format("{}ranks", group)), "failure", suite.about_ranks[0]->message,
                  suite.about_ranks);
  }
  if (!suite.open.empty()) {
    Finding open;
    open.message = suite.open;
    write_outcome(append_case(node, "verdict", fmt::format("{}verdict", group)), "failure", suite.open, {&open});
  }
  for (const auto* item : in_order(suite)) {
    const auto& [key, outcome] = *item;
    write_case(append_case(node, key.first, fmt::format("{}{}", group, name_of(key.second))), report, outcome);
  }
  if (!facts.text.empty()) set_text(node.append_child("system-out"), facts.text);
}

// A suite of one case, which is an error because of `problem`.
void append_error_suite(pugi::xml_node suites, std::string_view name, const std::string& problem) {
  pugi::xml_node suite = suites.append_child("testsuite");
  set_attribute(suite, "name", name);
  set_attribute(suite, "tests", std::int64_t{1});
  set_attribute(suite, "errors", std::int64_t{1});
  pugi::xml_node error = append_case(suite, "looked at", name).append_child("error");
  set_attribute(error, "message", problem);
}

std::string to_text(const pugi::xml_document& document) {
  std::ostringstream stream;
  document.save(stream, "  ");
  return stream.str();
}

}  // namespace

std::string to_junit(const Report& report, const SuiteFacts& facts) {
  pugi::xml_document document;
  append_suite(document.append_child("testsuites"), "ttrace check", "", report, facts);
  return to_text(document);
}

std::string to_junit(const RunReport& report, const std::vector<SuiteFacts>& facts) {
  pugi::xml_document document;
  pugi::xml_node suites = document.append_child("testsuites");
  if (!report.problem.empty()) append_error_suite(suites, "ttrace run", report.problem);
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const CandidateReport& candidate = report.candidates[i];
    if (candidate.problem.empty()) {
      append_suite(suites, candidate.name, candidate.name + ".", candidate.report,
                   i < facts.size() ? facts[i] : SuiteFacts());
    } else {
      append_error_suite(suites, candidate.name, candidate.problem);
    }
  }
  return to_text(document);
}

}  // namespace ttrace
