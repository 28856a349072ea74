#include <fmt/format.h>

#include <algorithm>
#include <pugixml.hpp>
#include <sstream>

#include "ttrace/report/report.h"

namespace ttrace {
namespace {

using CaseKey = std::pair<std::string, Kind>;

void set(pugi::xml_node node, const char* name, std::string_view value) {
  node.append_attribute(name).set_value(printable(value).c_str());
}

// What a case has to say: every finding about its tensors, in execution order, one a line.
struct Case {
  std::vector<const Finding*> failures, doubts;
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
  }
}

std::string to_string(const pugi::xml_document& document) {
  std::ostringstream stream;
  document.save(stream, "  ");
  return stream.str();
}

}  // namespace

std::string to_junit(const Report& report) {
  std::map<CaseKey, Case> cases;
  for (const auto& [key, counts] : report.by_name) cases.emplace(key, Case());
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
  const auto failures = static_cast<long long>(
      std::count_if(cases.begin(), cases.end(), [](const auto& item) { return !item.second.failures.empty(); }) +
      !about_ranks.empty() + nothing_trusted);
  const auto skipped = static_cast<long long>(std::count_if(cases.begin(), cases.end(), [](const auto& item) {
    return item.second.failures.empty() && !item.second.doubts.empty();
  }));

  pugi::xml_document document;
  pugi::xml_node suites = document.append_child("testsuites");
  pugi::xml_node suite = suites.append_child("testsuite");
  set(suite, "name", "ttrace check");
  suite.append_attribute("tests").set_value(static_cast<long long>(cases.size()) + !about_ranks.empty() +
                                            nothing_trusted);
  suite.append_attribute("failures").set_value(failures);
  suite.append_attribute("skipped").set_value(skipped);
  if (!about_ranks.empty()) write_case(suite, "ranks", "ranks", {about_ranks, {}});
  if (nothing_trusted) {
    Finding nothing;
    nothing.message = "nothing trusted was compared";
    write_case(suite, "verdict", "verdict", {{&nothing}, {}});
  }
  for (const auto& [key, outcome] : cases) write_case(suite, key.first, name_of(key.second), outcome);
  return to_string(document);
}

}  // namespace ttrace
