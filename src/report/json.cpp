#include "report/json.h"

#include <cmath>

#include "report/render.h"

namespace ttrace {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity and no NaN: they become null, and the finding's message tells them.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json number(const std::optional<double>& value) { return value ? number(*value) : Json(nullptr); }

Json identity(const Finding& finding) {
  const TensorId& id = finding.id;
  // A finding about ranks is about no tensor.
  const bool tensor = !id.name.empty();
  Json json;
  json["name"] = id.name;
  json["kind"] = tensor ? Json(name_of(id.kind)) : Json(nullptr);
  json["iteration"] = tensor ? Json(id.iteration) : Json(nullptr);
  json["microbatch"] = tensor && id.microbatch != kNoMicrobatch ? Json(id.microbatch) : Json(nullptr);
  json["pass"] = tensor ? Json(name_of(id.pass)) : Json(nullptr);
  return json;
}

Json worst(const Finding& finding) {
  if (!finding.difference || finding.difference->worst_rank < 0) return nullptr;
  const Difference& difference = *finding.difference;
  Json json;
  json["index"] = difference.worst_index;
  json["rank"] = difference.worst_rank;
  json["local_index"] = difference.worst_local_index;
  json["reference"] = number(difference.worst_reference);
  json["candidate"] = number(difference.worst_candidate);
  json["abs"] = number(difference.max_abs);
  return json;
}

// Returns the diagnosed root cause of the report's first wrong tensor. Null if the first finding is about ranks, since
// only tensors are diagnosed.
const RootCause* first_root(const Report& report) {
  const Finding* first = report.root_cause();
  const bool known =
      first != nullptr && !report.roots.empty() && report.findings.data() + report.roots[0].finding == first;
  return known ? &report.roots.front() : nullptr;
}

Json to_object(const std::optional<CodeLine>& line) {
  return line ? Json{{"file", line->file}, {"line", line->line}} : Json(nullptr);
}

void add_diagnosis(const RootCause& root, Json& json) {
  json["module"] = root.module;
  json["repeated"] = root.repeated;
  json["alike"] = root.alike;
  json["explained"] = root.explained;
  json["diagnosis"] = root.diagnosis ? Json(name_of(*root.diagnosis)) : Json(nullptr);
  json["diagnosis_residual"] = root.diagnosis ? number(root.residual) : Json(nullptr);
  json["sentence"] = root.sentence;
  json["standing"] = root.standing ? Json(name_of(*root.standing)) : Json(nullptr);
  json["source"] = {{"forward", to_object(root.source.forward)}, {"call", to_object(root.source.call)}};
}

Json root_cause(const Report& report) {
  if (report.root_cause() == nullptr) return nullptr;
  Json json = to_object(*report.root_cause());
  if (const RootCause* root = first_root(report)) add_diagnosis(*root, json);
  return json;
}

Json roots(const Report& report) {
  Json list = Json::array();
  for (const RootCause& root : report.roots) {
    Json json = identity(report.findings[root.finding]);
    add_diagnosis(root, json);
    list.push_back(std::move(json));
  }
  return list;
}

// How many statistics were held against tolerances.
std::int64_t tests_of(const Report& report) {
  std::int64_t tests = 0;
  for (const std::vector<Finding>* findings : {&report.findings, &report.passed}) {
    for (const Finding& finding : *findings) {
      if (finding.floating && finding.allowed) tests += 1 + static_cast<std::int64_t>(finding.statistics.size());
    }
  }
  return tests;
}

Json to_object(const Counts& counts) {
  return {{"compared", counts.compared},   {"pass", counts.pass},       {"fail", counts.fail},
          {"untrusted", counts.untrusted}, {"missing", counts.missing}, {"not_seen", counts.not_seen}};
}

Json to_object(const Proofs& proofs) {
  const std::set<Kind> unproved = unproved_kinds(proofs);
  Json json = Json::object();
  for (const auto& [kind, proof] : proofs) {
    json[std::string(name_of(kind))] = {{"compared", proof.compared},
                                        {"proved", proof.proved},
                                        {"others", proof.others},
                                        {"enough", !unproved.contains(kind)}};
  }
  return json;
}

Json to_object(const WithoutCounterpart& without) {
  return {{"reference", {{"tensors", without.reference}, {"names", without.names_of_reference}}},
          {"candidate", {{"tensors", without.candidate}, {"names", without.names_of_candidate}}}};
}

Json to_object(const OverrideUse& use) {
  return {{"where", use.where},
          {"pattern", use.pattern},
          {"kind", use.kind ? Json(name_of(*use.kind)) : Json(nullptr)},
          {"allowed", number(use.allowed)},
          {"reason", use.reason},
          {"covered", use.covered},
          {"excused", use.excused}};
}

Json to_object(const StepCoverage& steps) {
  Json json;
  json["parameters"] = steps.parameters;
  json["parameters_checked"] = steps.parameters_checked;
  json["updates"] = steps.updates;
  json["updates_checked"] = steps.updates_checked;
  json["copies_checked"] = steps.copies_checked;
  json["iterations"] = steps.iterations;
  json["optimizers"] = steps.optimizers;
  json["worst"] = number(steps.worst);
  json["updates_regressed"] = steps.updates_regressed;
  json["regressed_optimizers"] = steps.regressed_optimizers;
  json["worst_regressed"] = number(steps.worst_regressed);
  json["not_checkable"] = steps.not_checkable;
  return json;
}

}  // namespace

Json to_object(const Finding& finding) {
  Json json = identity(finding);
  json["verdict"] = name_of(finding.verdict);
  json["reason"] = name_of(finding.reason);
  json["rel_err"] = finding.difference ? number(finding.difference->rel_err()) : Json(nullptr);
  json["allowed"] = number(finding.allowed);
  json["ratio"] = number(ratio_of(finding));
  json["exceeded"] = finding.reason == Reason::kExceedsTolerance ? Json(name_of(finding.exceeded)) : Json(nullptr);
  json["statistics"] = Json::object();
  for (const JudgedStatistic& judged : finding.statistics) {
    json["statistics"][std::string(name_of(judged.statistic))] = {{"measured", number(judged.measured)},
                                                                  {"allowed", number(judged.allowed)}};
  }
  json["worst"] = worst(finding);
  json["ranks"] = finding.ranks;
  json["message"] = finding.message;
  return json;
}

Json to_object_without_findings(const Report& report) {
  Json json;
  json["schema"] = "ttrace-report/5";
  json["verdict"] = name_of(report.verdict());
  json["strict"] = report.strict;
  json["reference"] = report.reference;
  json["candidate"] = report.candidate;
  json["counts"] = to_object(report.counts);
  json["tests"] = tests_of(report);
  json["waived"] = report.waived;
  json["placed_by_shape"] = report.placed_by_shape;
  json["coverage"] = number(report.coverage);
  if (report.without_counterpart) json["without_counterpart"] = to_object(*report.without_counterpart);
  json["proof"] = report.proofs ? to_object(*report.proofs) : Json(nullptr);
  json["overrides"] = Json::array();
  for (const OverrideUse& use : report.overrides) json["overrides"].push_back(to_object(use));
  if (!report.partial.empty()) json["partial"] = report.partial;
  if (!report.sketched.empty()) json["sketched"] = report.sketched;
  if (!report.unmeasured.empty()) json["unmeasured"] = report.unmeasured;
  json["instead"] = report.instead.empty() ? Json(nullptr) : Json(report.instead);
  json["next"] = report.next_command.empty() ? Json(nullptr) : Json(report.next_command);
  json["root_cause"] = root_cause(report);
  json["roots"] = roots(report);
  json["wrong_in_second_run"] = report.wrong_in_second_run ? Json(*report.wrong_in_second_run) : Json(nullptr);
  if (report.steps) json["optimizer_steps"] = to_object(*report.steps);
  json["findings"] = Json::array();
  json["notes"] = report.notes;
  return json;
}

Json to_object(const Report& report) {
  Json json = to_object_without_findings(report);
  for (const Finding& finding : report.findings) json["findings"].push_back(to_object(finding));
  return json;
}

std::string to_text(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

std::string to_json(const Report& report) { return to_text(to_object(report)); }

std::string to_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) list.push_back(to_object(finding));
  return to_text(list);
}

}  // namespace ttrace
