#include "ttrace/diagnose/localization.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace ttrace {
namespace {

bool is_wrong(const Finding& finding) {
  return finding.verdict == Verdict::kFail || finding.verdict == Verdict::kMissing;
}

bool is_of_module(Kind kind) {
  return kind == Kind::kInput || kind == Kind::kOutput || kind == Kind::kGradOutput || kind == Kind::kGradInput ||
         kind == Kind::kParamGrad || kind == Kind::kMainGrad;
}

using Subject = std::tuple<Kind, std::string>;

Subject subject_of(const Report& report, const RootCause& root) {
  const TensorId& id = report.findings[root.finding].id;
  return {id.kind, id.name};
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

std::string_view name_of(Standing standing) {
  switch (standing) {
    case Standing::kConfirmed:
      return "confirmed";
    case Standing::kMoved:
      return "moved";
    case Standing::kFound:
      return "found";
  }
  return "";
}

std::vector<LocalizedRoot> localize(const Report& first, const Report& second) {
  std::set<Subject> still_wrong;
  for (const Finding& finding : second.findings) {
    if (is_wrong(finding)) still_wrong.emplace(finding.id.kind, finding.id.name);
  }
  std::vector<LocalizedRoot> roots, moved;
  std::set<std::string> told;  // modules
  for (std::size_t i = 0; i < first.roots.size(); ++i) {
    const RootCause& root = first.roots[i];
    const auto same_module = [&](const RootCause& other) { return other.module == root.module; };
    const auto alone = std::find_if(second.roots.begin(), second.roots.end(), same_module);
    LocalizedRoot localized{Standing::kConfirmed, i, std::nullopt};
    if (alone != second.roots.end()) localized.alone = static_cast<std::size_t>(alone - second.roots.begin());
    if (localized.alone || still_wrong.contains(subject_of(first, root))) {
      told.insert(root.module);
      roots.push_back(localized);
    } else {
      localized.standing = Standing::kMoved;
      moved.push_back(localized);
    }
  }
  for (std::size_t i = 0; i < second.roots.size(); ++i) {
    if (told.insert(second.roots[i].module).second) roots.push_back({Standing::kFound, i, std::nullopt});
  }
  const auto finding_of = [&](const LocalizedRoot& localized) -> const Finding& {
    const Report& report = localized.standing == Standing::kFound ? second : first;
    return report.findings[report.roots[localized.root].finding];
  };
  std::stable_sort(roots.begin(), roots.end(), [&](const LocalizedRoot& a, const LocalizedRoot& b) {
    return executes_before(finding_of(a), finding_of(b));
  });
  roots.insert(roots.end(), moved.begin(), moved.end());
  return roots;
}

}  // namespace ttrace
