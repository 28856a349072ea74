#include <fmt/format.h>

#include "advice/cases.h"
#include "diagnose/localization.h"
#include "host/shell_words.h"
#include "merge/rewritten.h"

namespace ttrace {

// The trace must say how to make a second run, and that must be able to tell something. The line has the command that
// the trace names for whoever types it to see, as words of their own: `ttrace localize` takes none from the trace.
std::optional<Step> second_run(const Report& report, const Situation& situation) {
  const Trace& candidate = *situation.candidate.trace;
  const bool has_roots = !report.explanation.roots.empty() && !has_rewritten_modules(candidate);
  if (!situation.localize || !has_roots || candidate.provenance.command.empty() || !plan_second_run(report).modules) {
    return std::nullopt;
  }
  return Step{std::nullopt, fmt::format("{} -- {}", *situation.localize, shell_words(candidate.provenance.command))};
}

std::optional<Step> without_rounding(const Report& /*report*/, const Situation& situation) {
  if (!situation.rounded_check) return std::nullopt;
  return Step{std::nullopt, situation.rounded_check};
}

std::optional<Step> report_page(const Report& /*report*/, const Situation& situation) {
  return Step{std::nullopt, situation.check + " --html report.html"};
}

}  // namespace ttrace
