#include "report/json.h"

#include <cmath>
#include <string_view>

#include "report/members.h"
#include "report/render.h"

namespace ttrace {
namespace report {

// Tells where a finding's largest difference is, where it is known.
std::optional<Worst> worst_of(const Finding& finding) {
  if (!finding.difference || finding.difference->worst_rank < 0) return std::nullopt;
  const Difference& difference = *finding.difference;
  return Worst{difference.worst_index,     difference.worst_local_index, difference.worst_rank,
               difference.worst_reference, difference.worst_candidate,   difference.max_abs};
}

std::optional<double> rel_err_of(const Finding& finding) {
  return finding.difference ? std::optional(finding.difference->rel_err()) : std::nullopt;
}

Keyed<ttrace::Statistic, Statistic> statistics_of(const Finding& finding) {
  Keyed<ttrace::Statistic, Statistic> statistics;
  for (const JudgedStatistic& judged : finding.statistics) {
    statistics.push_back({judged.statistic, {judged.measured, judged.allowed}});
  }
  return statistics;
}

std::optional<Keyed<Kind, JudgedProof>> proof_of(const Report& report) {
  if (!report.proof.by_kind) return std::nullopt;
  const std::set<Kind> unproved = unproved_kinds(*report.proof.by_kind);
  Keyed<Kind, JudgedProof> proofs;
  for (const auto& [kind, proof] : *report.proof.by_kind) proofs.push_back({kind, {proof, !unproved.contains(kind)}});
  return proofs;
}

std::vector<Root> roots_of(const Report& report) {
  std::vector<Root> roots;
  for (const RootCause& cause : report.explanation.roots) roots.push_back({report.findings[cause.finding].id, cause});
  return roots;
}

std::vector<OpenQuestion> questions_of(const Report& report) {
  std::vector<OpenQuestion> questions;
  for (const Question& question : report.explanation.questions) {
    questions.push_back({report.findings[question.finding].id, question});
  }
  return questions;
}

std::optional<FirstWrong> first_wrong_of(const Report& report) {
  const Finding* first = report.first_wrong();
  if (first == nullptr) return std::nullopt;
  const std::vector<RootCause>& roots = report.explanation.roots;
  const bool is_root = !roots.empty() && report.findings.data() + roots.front().finding == first;
  return FirstWrong{*first, is_root ? std::optional(roots.front()) : std::nullopt};
}

std::int64_t count_tests(const Report& report) {
  std::int64_t tests = 0;
  for (const std::vector<Finding>* findings : {&report.findings, &report.passed}) {
    for (const Finding& finding : *findings) {
      if (finding.floating && finding.allowed) tests += 1 + static_cast<std::int64_t>(finding.statistics.size());
    }
  }
  return tests;
}

namespace {

using Json = nlohmann::ordered_json;

// Writes an object as JSON, without the member of the name `left_out`.
struct Writer {
  Json json = Json::object();
  std::string_view left_out;

  void is(std::string_view /*name*/, std::string_view /*meaning*/) {}

  template <typename T>
  void has(const char* name, const T& value, std::string_view /*meaning*/) {
    if (name != left_out) json[name] = to_value(value);
  }
  template <typename T>
  void has(const char* name, const IfAny<T>& member, std::string_view /*meaning*/) {
    if (member.value) json[name] = to_value(*member.value);
  }

  static Json to_value(bool value) { return value; }
  static Json to_value(std::int32_t value) { return value; }
  static Json to_value(std::int64_t value) { return value; }
  static Json to_value(const std::string& value) { return value; }
  static Json to_value(const Version& value) { return value.text; }
  // JSON has no infinity and no NaN: they become null, and the finding's message tells them.
  static Json to_value(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

  template <typename T>
  static Json to_value(const std::optional<T>& value) {
    return value ? to_value(*value) : Json(nullptr);
  }
  template <typename T>
  static Json to_value(const std::vector<T>& values) {
    return to_list(values);
  }
  template <typename T>
  static Json to_value(const std::set<T>& values) {
    return to_list(values);
  }
  static Json to_value(const std::map<std::string, std::int64_t>& values) { return values; }
  template <typename Enum, typename T>
  static Json to_value(const Keyed<Enum, T>& values) {
    Json object = Json::object();
    for (const auto& [key, value] : values) object[std::string(name_of(key))] = to_value(value);
    return object;
  }
  template <typename T>
  static Json to_value(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      return name_of(value);
    } else {
      Writer writer;
      describe(writer, value);
      return std::move(writer.json);
    }
  }

 private:
  static Json to_list(const auto& values) {
    Json list = Json::array();
    for (const auto& value : values) list.push_back(to_value(value));
    return list;
  }
};

}  // namespace
}  // namespace report

nlohmann::ordered_json to_object(const Finding& finding) { return report::Writer::to_value(finding); }

nlohmann::ordered_json to_object(const Report& report) { return report::Writer::to_value(report); }

nlohmann::ordered_json to_object_without_findings(const Report& report) {
  report::Writer writer;
  writer.left_out = "findings";
  report::describe(writer, report);
  return std::move(writer.json);
}

std::string to_text(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string to_json(const Report& report) { return to_text(to_object(report)); }

std::string to_json(const std::vector<Finding>& findings) { return to_text(report::Writer::to_value(findings)); }

}  // namespace ttrace
