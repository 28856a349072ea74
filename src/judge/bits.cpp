#include "judge/bits.h"

#include <fmt/format.h>

#include <algorithm>

#include "align/holders.h"
#include "base/describe.h"

namespace ttrace {
namespace {

// True where `judge` has said no more than that the values are equal, or are not.
bool is_about_values(const Finding& finding) {
  return finding.verdict == Verdict::kPass || finding.reason == Reason::kExceedsTolerance ||
         finding.reason == Reason::kRecomputeDiffers || finding.reason == Reason::kAllZero ||
         finding.reason == Reason::kEmpty;
}

std::string units_of(std::uint64_t units, Dtype dtype) {
  return fmt::format("by up to {} unit{} in the last place of {}", units, units == 1 ? "" : "s", name_of(dtype));
}

// Says how the bits differ, as `3 of 64 elements have other bits, by up to 2 units in the last place of float32, at
// [0, 5]; worst at ...`.
std::string describe(const TensorPair& pair, const BitDifference& bits, const Difference& difference) {
  if (bits.other_dtypes) {
    return fmt::format("{} in the reference and {} in the candidate: other bits, whatever the values",
                       name_of(pair.reference->dtype), name_of(pair.candidate->dtype));
  }
  std::string text = fmt::format("{} of {} elements have other bits", bits.differing, difference.elements);
  if (difference.sketch) return "other bits, as their sketches show";
  if (bits.most_units > 0) {
    text += fmt::format(", {}, at {}", units_of(bits.most_units, pair.reference->dtype), to_string(bits.index));
  } else if (difference.differing == 0) {
    text += ", of the same value: zeros of another sign, or NaN";
  }
  if (!difference.worst_index.empty()) {
    text += fmt::format("; largest difference at {}: reference {:.9g}, candidate {:.9g}, on rank {}",
                        to_string(difference.worst_index), difference.worst_reference, difference.worst_candidate,
                        difference.worst_rank);
  }
  return text;
}

void set(Finding& finding, Verdict verdict, Reason reason, const std::string& what) {
  finding.verdict = verdict;
  finding.reason = reason;
  finding.message = fmt::format("{}: {}", to_string(finding.id), what);
}

}  // namespace

void hold_to_bits(const TensorPair& pair, const BitDifference& bits, Finding& finding) {
  if (!is_about_values(finding)) return;
  if (!bits.recorded) {
    if (finding.difference->differing == 0) return;
    finding.ranks.clear();
    return set(finding, Verdict::kUntrusted, Reason::kNotCheckable,
               "a sum over ranks, or a multiple, that no rank has computed, and so without bits of its own");
  }
  if (bits.differing == 0 && bits.of_copies.empty()) return;
  const Reason reason = bits.other_dtypes                             ? Reason::kDtypeMismatch
                        : finding.reason == Reason::kRecomputeDiffers ? Reason::kRecomputeDiffers
                                                                      : Reason::kExceedsTolerance;
  if (bits.differing == 0) {
    finding.ranks = bits.of_copies;
    return set(
        finding, Verdict::kFail, Reason::kReplicasDisagree,
        fmt::format("copies that must be equal have other bits: {} against the first", describe_ranks(bits.of_copies)));
  }
  finding.ranks = with_ranks_of_same_boxes(*pair.candidate, bits.ranks);
  const std::string where = finding.ranks.empty() ? "" : fmt::format("; on {}", describe_ranks(finding.ranks));
  set(finding, Verdict::kFail, reason, describe(pair, bits, *finding.difference) + where);
}

SumsWithoutBits::SumsWithoutBits(std::span<const TensorPair> pairs) {
  for (const TensorPair& pair : pairs) {
    TensorId id = pair.candidate->id;
    const bool shows = id.kind == Kind::kMainGrad || id.kind == Kind::kStepGrad || id.kind == Kind::kParamDelta ||
                       id.kind == Kind::kParamAfter;
    if (!shows) continue;
    id.kind = Kind::kMainGrad;
    reduced_.insert(std::move(id));
  }
}

bool SumsWithoutBits::take(const BitDifference& bits, const Finding& finding) {
  if (bits.recorded || finding.reason != Reason::kNotCheckable) return false;
  if (is_parameter_kind(finding.id.kind)) {
    TensorId id = finding.id;
    id.kind = Kind::kMainGrad;
    id.microbatch = kNoMicrobatch;
    if (finding.id.kind != Kind::kParamGrad || !reduced_.contains(id)) return false;
  }
  if (waived_++ == 0) first_ = to_string(finding.id);
  return true;
}

void SumsWithoutBits::note(std::vector<std::string>& notes) const {
  if (waived_ == 0) return;
  notes.push_back(
      fmt::format("{} tensors are sums over ranks, or multiples, that no rank has computed, such as {}: they have no "
                  "bits, and what is made of them is compared",
                  waived_, first_));
}

}  // namespace ttrace
