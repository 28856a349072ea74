// SARIF 2.1.0: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
#include <fmt/format.h>

#include <set>
#include <string_view>

#include "report/json.h"
#include "report/problem.h"
#include "report/render.h"

namespace ttrace {
namespace {

using Json = nlohmann::ordered_json;

// Escapes what a path of a URI may not hold (RFC 3986, section 3.3).
std::string uri_of(std::string_view path) {
  constexpr std::string_view kPlain = "-._~!$&'()*+,;=@/";
  std::string uri;
  for (const char c : path) {
    const bool is_plain =
        (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || kPlain.find(c) != kPlain.npos;
    uri += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return uri;
}

Json location_of(const Problem& problem) {
  Json location = Json::object();
  if (problem.line) {
    Json file;
    if (is_in_repository(*problem.line)) {
      file = {{"uri", uri_of(problem.line->file)}, {"uriBaseId", "%SRCROOT%"}};
    } else {
      file = {{"uri", "file://" + uri_of(problem.line->file)}};
    }
    location["physicalLocation"] = {{"artifactLocation", file}, {"region", {{"startLine", problem.line->line}}}};
  }
  if (!problem.module.empty()) {
    location["logicalLocations"] = Json::array({{{"fullyQualifiedName", problem.module}, {"kind", "module"}}});
  }
  return location;
}

Json message_of(const Problem& problem) {
  return {{"text", problem.who.empty() ? problem.text : printable(problem.who) + ": " + problem.text}};
}

Json document_of(const std::vector<Problem>& problems) {
  Json results = Json::array(), notifications = Json::array();
  std::set<std::string> rules;
  for (const Problem& problem : problems) {
    if (problem.rule == name_of(RunVerdict::kCouldNotLook)) {
      notifications.push_back({{"level", "error"}, {"message", message_of(problem)}});
      continue;
    }
    rules.insert(problem.rule);
    Json result = {{"ruleId", problem.rule}, {"level", "error"}, {"message", message_of(problem)}};
    if (const Json location = location_of(problem); !location.empty()) result["locations"] = Json::array({location});
    results.push_back(std::move(result));
  }
  Json driver = {{"name", "ttrace"}, {"version", TTRACE_VERSION}, {"rules", Json::array()}};
  for (const std::string& rule : rules) driver["rules"].push_back({{"id", rule}});
  const Json invocation = {{"executionSuccessful", notifications.empty()},
                           {"toolExecutionNotifications", notifications}};
  return {{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
          {"version", "2.1.0"},
          {"runs", Json::array({{{"tool", {{"driver", driver}}},
                                 {"invocations", Json::array({invocation})},
                                 {"columnKind", "unicodeCodePoints"},
                                 {"results", results}}})}};
}

}  // namespace

std::string to_sarif(const Report& report) { return to_text(document_of(problems_of(report))); }
std::string to_sarif(const RunReport& report) { return to_text(document_of(problems_of(report))); }

}  // namespace ttrace
