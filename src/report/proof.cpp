#include "report/proof.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/count_of.h"
#include "base/describe.h"

namespace ttrace {
namespace {

// Says what to do where most of what proves nothing has this reason.
std::string_view remedy_for(std::string_view reason) {
  if (reason == name_of(Reason::kAllZero)) {
    return "record an iteration in which they are not zero (--iterations), or mend what makes them so in both runs";
  }
  if (reason == name_of(Reason::kEmpty)) return "mend the NaN or Inf that both runs hold";
  if (reason == name_of(Reason::kNoise)) {
    return "make the reference repeat itself (its seeds, the order of its data), and estimate tolerances again; or "
           "compute in a wider dtype";
  }
  if (reason == name_of(Reason::kRerouted)) return "compute in a wider dtype, in which fewer tokens are near a tie";
  if (reason == kByOverride) return "mend what they excuse, or accept it: --accept-overrides";
  if (reason == kByWaiver) return "mend what they excuse, or accept it: accept_overrides: true";
  return "see the findings";
}

// `all-zero 3, noise 1`, the most frequent first.
std::vector<std::pair<std::string, std::int64_t>> most_first(const std::map<std::string, std::int64_t>& reasons) {
  std::vector<std::pair<std::string, std::int64_t>> sorted(reasons.begin(), reasons.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

std::string describe_kind(Kind kind, const KindProof& proof) {
  std::vector<std::string> reasons;
  for (const auto& [reason, count] : most_first(proof.others)) reasons.push_back(fmt::format("{} {}", count, reason));
  return fmt::format("{} {} of {} ({})", name_of(kind), proof.proved, proof.compared, fmt::join(reasons, ", "));
}

}  // namespace

std::string describe_proof(const Proofs& proofs) {
  std::int64_t compared = 0, proved = 0;
  std::vector<std::string> partly;
  for (const auto& [kind, proof] : proofs) {
    compared += proof.compared;
    proved += proof.proved;
    if (proof.proved == proof.compared) continue;
    partly.push_back(fmt::format("{} {} of {}", name_of(kind), proof.proved, proof.compared));
  }
  return fmt::format("{} of {} floating-point tensors{}", proved, compared,
                     partly.empty() ? "" : fmt::format(" ({})", fmt::join(partly, ", ")));
}

std::string describe_lack_of_proof(const Report& report) {
  if (const Finding* lost = report.lost()) {
    return fmt::format("the loss is not finite on either side, so that nothing is proved: {}; {}", to_string(lost->id),
                       remedy_for(name_of(Reason::kEmpty)));
  }
  std::vector<std::string> kinds;
  std::map<std::string, std::int64_t> reasons;
  for (const Kind kind : unproved_kinds(*report.proof.by_kind)) {
    const KindProof& proof = report.proof.by_kind->at(kind);
    kinds.push_back(describe_kind(kind, proof));
    for (const auto& [reason, count] : proof.others) reasons[reason] += count;
  }
  if (report.proof.unstepped && kinds.empty()) {
    return fmt::format(
        "nothing is proved of what these optimizers train, which took no step in all that was recorded: "
        "{}; expected iterations in which each steps (--iterations)",
        printable(*report.proof.unstepped));
  }
  if (const auto& zero = report.proof.zero_gradients; zero && kinds.empty()) {
    return fmt::format(
        "nothing is proved of {}, whose gradients are zero on both sides in all that was recorded; "
        "expected iterations in which they are not: --iterations {}-{}",
        comma_list(zero->families), zero->first, zero->last + 1);
  }
  if (const auto& families = report.proof.unproved_steps; !families.empty() && kinds.empty()) {
    if (!report.proof.unmeasured) {
      return fmt::format(
          "nothing is proved of the steps of {}: no optimizer of the program has them, and the parameters after it may "
          "differ by as much as the step changed them; expected a wider dtype, or steps that "
          "change them by more (--iterations, a higher learning rate)",
          comma_list(families));
    }
    return fmt::format(
        "nothing is proved of the steps of {}: no rule is known for them, and the default tolerances hold no step "
        "against the reference's; expected measured tolerances (`ttrace estimate-tolerance`)",
        comma_list(families));
  }
  if (kinds.empty()) return "no floating-point tensor was compared, so that nothing is proved";
  const std::string most = most_first(reasons).front().first;
  const bool may_measure = report.proof.unmeasured && most == name_of(Reason::kNoise);
  return fmt::format("too little is proved, of {}; expected half of each kind: {}", fmt::join(kinds, ", of "),
                     may_measure ? "measured tolerances (`ttrace estimate-tolerance`), which hold more against the "
                                   "reference's"
                                 : remedy_for(most));
}

std::string describe(const OverrideUse& use) {
  return fmt::format("the override '{}'{} ({}: {}) allows {} for {}, of which {} need{} it", use.pattern,
                     use.kind ? fmt::format(" of {}", name_of(*use.kind)) : "", use.where, use.reason, use.allowed,
                     count_of(use.covered, "tensor"), use.excused, use.excused == 1 ? "s" : "");
}

}  // namespace ttrace
