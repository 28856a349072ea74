#include "ttrace/diagnose/diagnosis.h"

#include <array>
#include <cmath>
#include <map>

#include "diagnose/hypothesis.h"
#include "ttrace/judge/match.h"

namespace ttrace {
namespace {

constexpr std::array<std::string_view, 16> kNames = {"missing",
                                                     "not-finite",
                                                     "never-updated",
                                                     "zero",
                                                     "unreduced",
                                                     "uniform-factor",
                                                     "stale",
                                                     "other-tensor",
                                                     "permuted-blocks",
                                                     "reinterpreted",
                                                     "missing-contribution",
                                                     "stale-operand",
                                                     "other-rows",
                                                     "rank-factor",
                                                     "coarser-precision",
                                                     "region"};
static_assert(kNames.size() == static_cast<std::size_t>(Cause::kRegion) + 1);

// The most telling first: what explains little is named only when nothing better does. Before them come those that
// the measured sums answer.
constexpr std::array kHypotheses = {never_updated,
                                    stale,
                                    other_tensor,
                                    permuted_blocks,
                                    reinterpreted,
                                    missing_contribution,
                                    stale_operand,
                                    reinterpreted_operand,
                                    reinterpreted_in_attention,
                                    other_rows,
                                    rank_factor,
                                    coarser_precision,
                                    region};

bool all_finite(const Values& values) {
  for (const double value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

double bound_of(const Finding& finding, const LogicalTensor& candidate) {
  return std::max(finding.allowed.value_or(0), epsilon_of(candidate.dtype));
}

std::optional<Diagnosis> diagnose_sums(const Finding& finding, double bound, const Evidence& evidence) {
  if (!finding.difference || finding.reason == Reason::kReplicasDisagree) return std::nullopt;
  if (auto diagnosis = zero(finding)) return diagnosis;
  return uniform_factor(finding, bound, evidence);
}

constexpr std::int32_t kMostCopies = 64;  // looked at, of thousands

// Of copies that disagree, the one that is furthest from the reference.
struct Copy {
  Values values;
  std::int32_t replica = 0;
  std::int32_t rank = -1;  // that holds it; -1: there is no other
};

Copy worst_copy(const LogicalTensor& candidate, const Values& expected) {
  std::map<std::int32_t, std::int32_t> ranks;  // of each replica, the first
  for (const Piece& piece : candidate.pieces()) {
    if (piece.replica < kMostCopies) ranks.try_emplace(piece.replica, piece.rank);
  }
  Copy worst{values_of(candidate)};
  double largest = relative_distance(worst.values, expected);
  for (const auto& [replica, rank] : ranks) {
    if (replica == 0) continue;
    Values values = values_of(candidate, replica);
    const double distance = relative_distance(values, expected);
    if (!(distance > largest)) continue;
    largest = distance;
    worst = {std::move(values), replica, rank};
  }
  return worst;
}

std::optional<Diagnosis> diagnose_values(const Finding& finding, const LogicalTensor& reference,
                                         const LogicalTensor& candidate, const Evidence& evidence) {
  const double bound = bound_of(finding, candidate);
  if (auto diagnosis = diagnose_sums(finding, bound, evidence)) return diagnosis;
  if (reference.shape != candidate.shape || !is_small(reference) || !is_small(candidate)) return std::nullopt;
  const Values expected = values_of(reference);
  const Copy copy = worst_copy(candidate, expected);
  const std::vector<Local> parts = locals_of(candidate, copy.replica);
  Suspect suspect{finding, reference, candidate, evidence, expected, copy.values, parts, bound, 0};
  if (!all_finite(suspect.expected) || !all_finite(suspect.found)) return std::nullopt;
  suspect.error = relative_distance(suspect.found, suspect.expected);
  if (auto diagnosis = unreduced(suspect)) return diagnosis;
  if (suspect.error <= bound) return std::nullopt;
  for (const auto hypothesis : kHypotheses) {
    auto diagnosis = hypothesis(suspect);
    if (!diagnosis) continue;
    if (copy.rank >= 0) diagnosis->what = fmt::format("the copy of rank {}: {}", copy.rank, diagnosis->what);
    return diagnosis;
  }
  return std::nullopt;
}

}  // namespace

bool is_small(const LogicalTensor& tensor) {
  return element_count(tensor.shape) <= std::int64_t{1} << 20 && !tensor.rows;
}

std::string_view name_of(Cause cause) { return kNames[static_cast<std::size_t>(cause)]; }

std::optional<Diagnosis> diagnose(const Finding& finding, bool made_here, const Evidence& evidence) {
  if (finding.verdict == Verdict::kMissing) return Diagnosis{Cause::kMissing, 0, "it is not there"};
  if (finding.reason == Reason::kNotFinite) {
    return Diagnosis{Cause::kNotFinite, 0,
                     made_here ? "it is not finite, though all that it was computed from is"
                               : "it is not finite where it first shows"};
  }
  const LogicalTensor* reference = counterpart(evidence.reference, finding.id);
  const auto candidate = evidence.candidate.tensors.find(finding.id);
  if (reference == nullptr || candidate == evidence.candidate.tensors.end()) return std::nullopt;
  return diagnose_values(finding, *reference, candidate->second, evidence);
}

}  // namespace ttrace
