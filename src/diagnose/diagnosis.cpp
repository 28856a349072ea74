#include "ttrace/diagnose/diagnosis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "align/holders.h"
#include "align/lookup.h"
#include "diagnose/hypothesis.h"
#include "ttrace/judge/match.h"

namespace ttrace {
namespace {

// The most telling first: what explains little is named only when nothing better does. Before them come those that
// the measured sums answer.
constexpr std::array kHypotheses = {stale,
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

// The copies that ranks hold, each held against the reference.
struct Copies {
  std::size_t count = 0;
  Values worst;
  std::int32_t replica = 0, rank = 0;  // of the worst
  std::vector<std::int32_t> wrong;     // the first rank of each that is
  double right = 0;                    // what the others differ by at most
};

Copies copies_of(const LogicalTensor& candidate, const Values& expected, double bound) {
  std::map<std::int32_t, std::int32_t> ranks;  // of each replica, the first
  for (const Piece& piece : candidate.pieces()) {
    if (piece.replica < kMostCopies) ranks.try_emplace(piece.replica, piece.rank);
  }
  Copies copies;
  double largest = -1;
  for (const auto& [replica, rank] : ranks) {
    Values values = values_of(candidate, replica);
    const double distance = relative_distance(values, expected);
    if (distance > bound) {
      copies.wrong.push_back(rank);
    } else {
      copies.right = std::max(copies.right, distance);
    }
    ++copies.count;
    if (!(distance > largest)) continue;
    largest = distance;
    copies.worst = std::move(values);
    copies.replica = replica;
    copies.rank = rank;
  }
  return copies;
}

std::optional<Diagnosis> first_that_explains(const Suspect& suspect) {
  if (auto diagnosis = never_updated(suspect)) return diagnosis;
  if (suspect.found.size() < kFewestValues) return std::nullopt;
  for (const auto hypothesis : kHypotheses) {
    if (auto diagnosis = hypothesis(suspect)) return diagnosis;
  }
  return std::nullopt;
}

std::optional<Diagnosis> diagnose_copies(const Copies& copies, const Suspect& suspect) {
  if (copies.wrong.size() == copies.count) return std::nullopt;
  return suspect.explained_by(Cause::kRegion, copies.right,
                              fmt::format("wrong in the copy of rank {} only ({} of {} copies), right elsewhere",
                                          fmt::join(copies.wrong, ", "), copies.wrong.size(), copies.count));
}

std::optional<Diagnosis> diagnose_values(const Finding& finding, const LogicalTensor& reference,
                                         const LogicalTensor& candidate, const Evidence& evidence) {
  const double bound = bound_of(finding, candidate);
  if (auto diagnosis = diagnose_sums(finding, bound, evidence)) return diagnosis;
  if (reference.shape != candidate.shape || !is_small(reference) || !is_small(candidate)) return std::nullopt;
  const Values expected = values_of(reference);
  const Copies copies = copies_of(candidate, expected, bound);
  const std::vector<LocalTensor> parts = local_tensors_of(candidate, copies.replica);
  Suspect suspect{finding, reference, candidate, evidence, expected, copies.worst, parts, bound, 0};
  if (!all_finite(suspect.expected) || !all_finite(suspect.found)) return std::nullopt;
  suspect.error = relative_distance(suspect.found, suspect.expected);
  if (auto diagnosis = unreduced(suspect)) return diagnosis;
  if (suspect.error <= bound) return std::nullopt;
  auto diagnosis = first_that_explains(suspect);
  if (!diagnosis) return diagnose_copies(copies, suspect);
  if (finding.reason == Reason::kReplicasDisagree) {
    diagnosis->what = fmt::format("the copy of rank {}: {}", copies.rank, diagnosis->what);
  }
  return diagnosis;
}

// Which is the first, in words.
std::string first_nonfinite(const LogicalTensor& candidate) {
  if (!is_small(candidate)) return {};
  const Values values = values_of(candidate);
  const auto first = std::find_if(values.begin(), values.end(), [](double value) { return !std::isfinite(value); });
  if (first == values.end()) return {};
  const std::int64_t element = first - values.begin();
  return fmt::format(" (first at element {}: {}, on rank {})", element, std::isnan(*first) ? "NaN" : "Inf",
                     fmt::join(ranks_holding(candidate, element), ", "));
}

}  // namespace

bool is_small(const LogicalTensor& tensor) {
  return element_count(tensor.shape) <= std::int64_t{1} << 20 && !tensor.rows;
}

std::optional<Diagnosis> diagnose(const Finding& finding, bool made_here, const Evidence& evidence) {
  if (finding.verdict == Verdict::kMissing) return Diagnosis{Cause::kMissing, 0, "it is not there"};
  const LogicalTensor* reference = counterpart(evidence.reference, finding.id);
  const LogicalTensor* candidate = find_tensor(evidence.candidate, finding.id);
  if (reference == nullptr || candidate == nullptr) return std::nullopt;
  if (finding.reason == Reason::kNotFinite) {
    return Diagnosis{Cause::kNotFinite, 0,
                     fmt::format("it is not finite{}{}", first_nonfinite(*candidate),
                                 made_here ? ", though all that it was computed from is" : " where it first shows")};
  }
  return diagnose_values(finding, *reference, *candidate, evidence);
}

}  // namespace ttrace
