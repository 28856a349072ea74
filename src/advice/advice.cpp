#include "advice/advice.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "advice/cases.h"

namespace ttrace {
namespace {

using Case = std::optional<Step> (*)(const Report&, const Situation&);

// The cases of a candidate that differs, in the order in which they are tried. What is lacking comes first; a closer
// look is the next command where no lack names one.
constexpr std::array<Case, 5> kLacks = {lacks_correspondence, lacks_activations, lacks_annotations,
                                        lacks_order_of_microbatches, lacks_tolerances};
constexpr std::array<Case, 3> kCloserLooks = {without_rounding, second_run, report_page};
// The cases of one that may be right.
constexpr std::array<Case, 5> kOpen = {lacks_correspondence, lacks_placement, lacks_activations, lacks_iterations,
                                       lacks_measurement};

// Returns the step of the first case that applies; an empty one where none does.
Step first_step(std::span<const Case> cases, const Report& report, const Situation& situation) {
  for (const Case each : cases) {
    if (auto step = each(report, situation)) return *std::move(step);
  }
  return {};
}

// True where ranks are missing, unfinished or there twice.
bool has_broken_ranks(const Report& report) {
  return std::any_of(report.findings.begin(), report.findings.end(), [](const Finding& finding) {
    return finding.reason == Reason::kMissingRank || finding.reason == Reason::kIncompleteRank ||
           finding.reason == Reason::kDuplicateRank;
  });
}

}  // namespace

void add_advice(const Situation& situation, Report& report) {
  report.advice.all_findings = situation.check + " --all";
  if (report.verdict() == RunVerdict::kCouldNotLook && !has_broken_ranks(report)) {
    const Step step = first_step(kOpen, report, situation);
    report.advice.next = step.next;
    report.advice.lacks_activations = step.lacks_activations;
  }
  if (report.verdict() != RunVerdict::kDifferent) return;
  Step step = first_step(kLacks, report, situation);
  if (has_broken_ranks(report)) {
    if (step.instead) report.notes.push_back(*std::move(step.instead));
    step = {std::nullopt, std::nullopt, std::move(step.note)};
  }
  if (!step.next) step.next = first_step(kCloserLooks, report, situation).next;
  if (step.note) report.notes.push_back(*std::move(step.note));
  report.advice.instead = std::move(step.instead);
  report.advice.next = std::move(step.next);
  report.advice.lacks_activations = step.lacks_activations;
}

}  // namespace ttrace
