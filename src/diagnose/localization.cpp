#include "ttrace/diagnose/localization.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

namespace ttrace {
namespace {

bool is_of_module(Kind kind) {
  return kind == Kind::kInput || kind == Kind::kOutput || kind == Kind::kGradOutput || kind == Kind::kGradInput ||
         kind == Kind::kParamGrad || kind == Kind::kMainGrad;
}

using Subject = std::tuple<Kind, std::string>;

Subject subject_of(const Report& report, const RootCause& root) {
  const TensorId& id = report.findings[root.finding].id;
  return {id.kind, id.name};
}

// The place of what is wrong with the tensor; nothing where it was right.
std::optional<std::size_t> finding_of(const Report& report, const TensorId& id) {
  const auto found = std::find_if(report.findings.begin(), report.findings.end(),
                                  [&](const Finding& finding) { return finding.id == id && is_wrong(finding); });
  if (found == report.findings.end()) return std::nullopt;
  return static_cast<std::size_t>(found - report.findings.begin());
}

}  // namespace

SecondPass plan_second_pass(const Report& first) {
  SecondPass plan;
  for (const Finding& finding : first.findings) {
    if (finding.verdict != Verdict::kFail || finding.id.name.empty()) continue;
    plan.modules = plan.modules || is_of_module(finding.id.kind);
    plan.parameters = plan.parameters || finding.id.kind == Kind::kParam;
  }
  plan.modules = plan.modules || plan.parameters;
  if (!plan.modules) {
    plan.reason = first.same() ? "nothing differs" : "what differs is no module's input, output or gradient";
  }
  return plan;
}

void add_second_run(Report& report, const Report& second) {
  std::set<Subject> still_wrong;
  for (const Finding& finding : second.findings) {
    if (is_wrong(finding)) still_wrong.emplace(finding.id.kind, finding.id.name);
  }
  std::vector<RootCause> roots, moved;
  std::set<std::string> told;  // modules
  for (RootCause& root : report.roots) {
    const auto same_module = [&](const RootCause& other) { return other.module == root.module; };
    const auto alone = std::find_if(second.roots.begin(), second.roots.end(), same_module);
    const bool is_confirmed = alone != second.roots.end() || still_wrong.contains(subject_of(report, root));
    root.standing = is_confirmed ? Standing::kConfirmed : Standing::kMoved;
    if (is_confirmed) told.insert(root.module);
    if (alone != second.roots.end() && !root.diagnosis && alone->diagnosis) {
      root.diagnosis = alone->diagnosis;
      root.residual = alone->residual;
      root.sentence = alone->sentence;
    }
    (is_confirmed ? roots : moved).push_back(root);
  }
  for (RootCause root : second.roots) {
    const std::optional<std::size_t> finding = finding_of(report, second.findings[root.finding].id);
    if (!finding || !told.insert(root.module).second) continue;
    root.finding = *finding;
    root.standing = Standing::kFound;
    roots.push_back(std::move(root));
  }
  std::stable_sort(roots.begin(), roots.end(), [&](const RootCause& a, const RootCause& b) {
    return executes_before(report.findings[a.finding], report.findings[b.finding]);
  });
  roots.insert(roots.end(), moved.begin(), moved.end());
  report.roots = std::move(roots);
  report.wrong_in_second_run = second.counts.fail + second.counts.missing;
}

}  // namespace ttrace
