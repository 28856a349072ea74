#include "report/junit.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "ttrace/report/render.h"

namespace ttrace {
namespace {

using CaseKey = std::pair<std::string, Kind>;

void set(pugi::xml_node node, const char* name, std::string_view value) {
  node.append_attribute(name).set_value(printable(value).c_str());
}

// What a case has to say: every finding about its tensors, in execution order, one a line.
struct Case {
  std::vector<const Finding*> failures, doubts;
  std::vector<const WaivedFinding*> waived;
};

void write_outcome(pugi::xml_node node, const char* element, const std::vector<const Finding*>& findings) {
  pugi::xml_node outcome = node.append_child(element);
  set(outcome, "message", findings[0]->message);
  set(outcome, "type", name_of(findings[0]->reason));
  std::string lines;
  for (const Finding* finding : findings) lines += printable(finding->message) + "\n";
  outcome.append_child(pugi::node_pcdata).set_value(lines.c_str());
}

void write_case(pugi::xml_node suite, std::string_view name, std::string_view group, const Case& outcome) {
  pugi::xml_node node = suite.append_child("testcase");
  set(node, "classname", group);
  set(node, "name", name);
  if (!outcome.failures.empty()) {
    write_outcome(node, "failure", outcome.failures);
  } else if (!outcome.doubts.empty()) {
    write_outcome(node, "skipped", outcome.doubts);
  } else if (!outcome.waived.empty()) {
    const Waiver& waiver = outcome.waived[0]->waiver;
    set(node.append_child("skipped"), "message",
        fmt::format("waived until {}: {}; {}", waiver.expires, waiver.reason, outcome.waived[0]->finding.message));
  }
}

}  // namespace

void append_suite(pugi::xml_node suites, std::string_view name, std::string_view group, const Report& report) {
  std::map<CaseKey, Case> cases;
  for (const auto& [key, counts] : report.by_name) cases.emplace(key, Case());
  for (const WaivedFinding& waived : report.waived_findings) {
    cases[{waived.finding.id.name, waived.finding.id.kind}].waived.push_back(&waived);
  }
  std::vector<const Finding*> about_ranks;
  for (const Finding& finding : report.findings) {
    if (finding.id.name.empty()) {
      about_ranks.push_back(&finding);
      continue;
    }
    Case& outcome = cases[{finding.id.name, finding.id.kind}];
    // What keeps the verdict from being `same` is a failure.
    const bool doubt =
        finding.verdict == Verdict::kUntrusted && finding.reason != Reason::kNoTolerance && !report.strict;
    (doubt ? outcome.doubts : outcome.failures).push_back(&finding);
  }
  // A consumer that counts failures must see one whenever the verdict is not `same`.
  const bool nothing_trusted = !report.same() && report.root_cause() == nullptr && report.counts.pass == 0;
  const long long failures =
      std::count_if(cases.begin(), cases.end(), [](const auto& item) { return !item.second.failures.empty(); }) +
      !about_ranks.empty() + nothing_trusted;
  const long long skipped = std::count_if(cases.begin(), cases.end(), [](const auto& item) {
    return item.second.failures.empty() && (!item.second.doubts.empty() || !item.second.waived.empty());
  });

  pugi::xml_node suite = suites.append_child("testsuite");
  set(suite, "name", name);
  suite.append_attribute("tests").set_value(static_cast<long long>(cases.size()) + !about_ranks.empty() +
                                            nothing_trusted);
  suite.append_attribute("failures").set_value(failures);
  suite.append_attribute("skipped").set_value(skipped);
  if (!about_ranks.empty()) write_case(suite, "ranks", fmt::format("{}ranks", group), {about_ranks, {}, {}});
  if (nothing_trusted) {
    Finding nothing;
    nothing.message = "nothing trusted was compared";
    write_case(suite, "verdict", fmt::format("{}verdict", group), {{&nothing}, {}, {}});
  }
  for (const auto& [key, outcome] : cases) {
    write_case(suite, key.first, fmt::format("{}{}", group, name_of(key.second)), outcome);
  }
}

void append_error_suite(pugi::xml_node suites, std::string_view name, const std::string& problem) {
  pugi::xml_node suite = suites.append_child("testsuite");
  set(suite, "name", name);
  set(suite, "tests", "1");
  set(suite, "errors", "1");
  pugi::xml_node node = suite.append_child("testcase");
  set(node, "classname", name);
  set(node, "name", "looked at");
  set(node.append_child("error"), "message", problem);
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
