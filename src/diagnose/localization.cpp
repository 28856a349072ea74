#include "diagnose/localization.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

namespace ttrace {
namespace {

bool is_module_kind(Kind kind) {
  return kind == Kind::kInput || kind == Kind::kOutput || kind == Kind::kGradOutput || kind == Kind::kGradInput ||
         kind == Kind::kParamGrad || kind == Kind::kMainGrad;
}

using KindAndName = std::tuple<Kind, std::string>;

KindAndName wrong_tensor(const Report& report, const RootCause& root) {
  const TensorId& id = report.findings[root.finding].id;
  return {id.kind, id.name};
}

// Returns the index of the first finding that calls the tensor wrong; nothing where none does.
std::optional<std::size_t> find_wrong(const Report& report, const TensorId& id) {
  const auto found = std::find_if(report.findings.begin(), report.findings.end(),
                                  [&](const Finding& finding) { return finding.id == id && is_wrong(finding); });
  if (found == report.findings.end()) return std::nullopt;
  return static_cast<std::size_t>(found - report.findings.begin());
}

}  // namespace

SecondRunPlan plan_second_run(const Report& first) {
  SecondRunPlan plan;
  if (first.runs.cut_otherwise) {
    plan.reason =
        "the candidate runs the reference's batch in other micro-batches, and takes none of its values as they are";
    return plan;
  }
  for (const Finding& finding : first.findings) {
    if (finding.verdict != Verdict::kFail || finding.id.name.empty()) continue;
    plan.modules = plan.modules || is_module_kind(finding.id.kind);
    plan.parameters = plan.parameters || finding.id.kind == Kind::kParam;
  }
  plan.modules = plan.modules || plan.parameters;
  if (!plan.modules) {
    plan.reason = first.same() ? "nothing differs" : "what differs is no module's input, output or gradient";
  }
  return plan;
}

void add_second_run(Report& report, const Report& second) {
  std::set<KindAndName> still_wrong;
  for (const Finding& finding : second.findings) {
    // With right values after it, what the program gives its model may look like a guess; it differs all the same.
    if (is_wrong(finding) || is_in_question(finding)) still_wrong.emplace(finding.id.kind, finding.id.name);
  }
  std::vector<RootCause> roots, moved;
  std::set<std::string> reported_modules;
  for (RootCause& root : report.explanation.roots) {
    const auto same_module = [&](const RootCause& other) { return other.module == root.module; };
    const auto root_by_itself =
        std::find_if(second.explanation.roots.begin(), second.explanation.roots.end(), same_module);
    // The second run has the reference's parameters, and what a run begins with follows from nothing in it.
    const bool is_beginning = report.findings[root.finding].id.kind == Kind::kParam;
    const bool is_confirmed = is_beginning || root_by_itself != second.explanation.roots.end() ||
                              still_wrong.contains(wrong_tensor(report, root));
    root.standing = is_confirmed ? Standing::kConfirmed : Standing::kMoved;
    if (is_confirmed) reported_modules.insert(root.module);
    if (root_by_itself != second.explanation.roots.end() && !root.diagnosis && root_by_itself->diagnosis) {
      root.diagnosis = root_by_itself->diagnosis;
      root.residual = root_by_itself->residual;
      root.sentence = root_by_itself->sentence;
    }
    (is_confirmed ? roots : moved).push_back(root);
  }
  for (RootCause root : second.explanation.roots) {
    const std::optional<std::size_t> finding = find_wrong(report, second.findings[root.finding].id);
    if (!finding || !reported_modules.insert(root.module).second) continue;
    root.finding = *finding;
    root.standing = Standing::kFound;
    roots.push_back(std::move(root));
  }
  std::stable_sort(roots.begin(), roots.end(), [&](const RootCause& a, const RootCause& b) {
    return executes_before(report.findings[a.finding], report.findings[b.finding]);
  });
  roots.insert(roots.end(), moved.begin(), moved.end());
  report.explanation.roots = std::move(roots);
  report.explanation.wrong_in_second_run = second.totals.counts.fail + second.totals.counts.missing;
}

}  // namespace ttrace
