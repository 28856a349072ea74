#include "ttrace/report/report.h"

#include <algorithm>
#include <cmath>

namespace ttrace {

void Counts::add(Verdict verdict) {
  pass += verdict == Verdict::kPass;
  fail += verdict == Verdict::kFail;
  untrusted += verdict == Verdict::kUntrusted;
  missing += verdict == Verdict::kMissing;
  compared = pass + fail + untrusted;
}

bool Report::same() const {
  return counts.pass > 0 && counts.fail == 0 && counts.missing == 0 && (!strict || counts.untrusted == 0) &&
         root_cause() == nullptr && !lacks_tolerance();
}

bool Report::lacks_tolerance() const {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.reason == Reason::kNoTolerance; });
}

const Finding* Report::root_cause() const {
  const auto found = std::find_if(findings.begin(), findings.end(), is_wrong);
  return found == findings.end() ? nullptr : &*found;
}

std::optional<double> ratio_of(const Finding& finding) {
  if (!finding.difference || !finding.allowed || finding.reason == Reason::kNotFinite) return std::nullopt;
  const double ratio = finding.difference->rel_err() / *finding.allowed;
  return std::isfinite(ratio) ? std::optional(ratio) : std::nullopt;
}

}  // namespace ttrace
