#include "workflow/reference_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "correspond/translate.h"
#include "identify/microbatch.h"
#include "workflow/annotations.h"
#include "workflow/saved.h"

namespace ttrace {
namespace {

// The candidate in the reference's names.
Alignment named_as(const AlignedTrace& reference, AlignedTrace& candidate, const std::string& correspondence) {
  if (correspondence.empty()) return std::move(candidate.alignment);
  const Correspondence rules = load_correspondence(correspondence);
  const std::size_t side = side_of_reference(rules, *reference.trace, *candidate.trace);
  return in_names_of_candidate(rules, 1 - side, candidate, *reference.trace);
}

}  // namespace

void settle_order_of_reference(AlignedTrace& reference, const Annotations& of_reference, const std::string& candidate,
                               const Annotations& of_candidate, const std::string& correspondence) {
  const std::string axes = reference.alignment.open_order;
  if (axes.empty()) return;
  reference.alignment.open_order.clear();
  AlignedTrace other = align_trace(read_run(candidate, {}), of_candidate);
  if (!other.alignment.open_order.empty()) return;  // that of the candidate follows from the reference's
  const Alignment named = named_as(reference, other, correspondence);
  const ToldOrder told = order_told_by(named, *reference.trace, of_reference);
  if (told.open) reference.alignment.open_order = axes;
  if (!told.rule) return;
  Annotations annotations = of_reference;
  annotations.microbatches = *told.rule;
  Alignment alignment = align(*reference.trace, annotations, {});
  const bool is_whole = std::all_of(alignment.findings.begin(), alignment.findings.end(),
                                    [&](const Finding& finding) { return is_not_seen(alignment, finding); });
  if (!is_whole) return;
  reference.alignment = std::move(alignment);
  const bool blocked = told.rule->order == MicrobatchOrder::kBlocked;
  reference.alignment.notes.push_back(fmt::format(
      "the ranks along {} run {}, as the candidate's integer inputs say (microbatches: {{order: {}}})", axes,
      blocked ? "consecutive micro-batches" : "slices of each micro-batch", blocked ? "blocked" : "slices"));
}

}  // namespace ttrace
