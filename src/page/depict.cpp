#include "page/depict.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "base/lookup.h"
#include "base/tensor_name.h"
#include "judge/match.h"
#include "merge/overlay.h"
#include "page/error_values.h"
#include "page/shards.h"

namespace ttrace {
namespace {

// The name without its numbers, which layers, experts and members of tuples differ in.
std::string without_digits(const std::string& name) {
  std::string text;
  std::copy_if(name.begin(), name.end(), std::back_inserter(text), [](char c) { return c < '0' || c > '9'; });
  return text;
}

// The larger, the more there is to see: what is wrong comes before what is near to it.
std::pair<bool, double> interest_of(const Finding& finding) {
  const double unknown = is_wrong(finding) ? std::numeric_limits<double>::infinity() : 0;
  return {is_wrong(finding), ratio_of(finding).value_or(unknown)};
}

// The findings that get a picture: the roots, the most interesting one of each kind and module, then all others.
std::vector<const Finding*> choose(const Report& report) {
  std::vector<const Finding*> measured;
  for (const std::vector<Finding>* findings : {&report.findings, &report.passed}) {
    for (const Finding& finding : *findings) {
      if (finding.difference) measured.push_back(&finding);
    }
  }
  std::sort(measured.begin(), measured.end(), [](const Finding* a, const Finding* b) {
    return interest_of(*a) != interest_of(*b) ? interest_of(*a) > interest_of(*b) : executes_before(*a, *b);
  });
  std::vector<const Finding*> chosen;
  std::set<TensorId> known;
  const auto add = [&](const Finding& finding) {
    if (!finding.id.name.empty() && known.insert(finding.id).second) chosen.push_back(&finding);
  };
  for (const RootCause& root : report.explanation.roots) add(report.findings[root.finding]);
  std::set<std::pair<Kind, std::string>> groups;
  for (const Finding* finding : measured) {
    if (groups.emplace(finding->id.kind, without_digits(finding->id.name)).second) add(*finding);
  }
  for (const Finding* finding : measured) {
    if (chosen.size() >= kMostPictures) break;
    add(*finding);
  }
  return chosen;
}

// Returns what the candidate's tensor was compared with: where a recomputed tensor differs from its own first forward,
// that.
const LogicalTensor* compared_with(const Finding& finding, const Alignment& reference, const Alignment& candidate) {
  if (finding.reason != Reason::kRecomputeDiffers) return counterpart(reference, finding.id);
  TensorId forward = finding.id;
  forward.pass = Pass::kForward;
  return find_tensor(candidate, forward);
}

// The tensor as `rank` sees it.
LogicalTensor seen_by_rank(const LogicalTensor& tensor, std::int32_t rank) {
  for (const Piece& piece : tensor.pieces()) {
    if (piece.rank == rank) return piece.replica == 0 ? tensor : seen_by_replica(tensor, piece.replica);
  }
  return tensor;
}

}  // namespace

Picture depict_tensor(const LogicalTensor& reference, const LogicalTensor& candidate, std::int32_t differing_rank,
                      std::int64_t most_elements) {
  Picture picture;
  picture.id = candidate.id;
  picture.reference_shape = reference.shape;
  picture.candidate_shape = candidate.shape;
  picture.reference_dtype = reference.dtype;
  picture.candidate_dtype = candidate.dtype;
  picture.reference = depict_shards(reference);
  picture.candidate = depict_shards(candidate);
  if (reference.shape != candidate.shape) {
    picture.without_values = "the shapes differ";
  } else if (reference.rows || candidate.rows) {
    picture.without_values = "it holds routed tokens, and each side may hold others";
  } else if (reference.sketched || candidate.sketched) {
    picture.without_values = "it was recorded as a sketch";
  } else if (element_count(reference.shape) > most_elements) {
    picture.without_values = "the tensors that were drawn before it are all that is read for one page";
  } else {
    depict_values(reference, differing_rank < 0 ? candidate : seen_by_rank(candidate, differing_rank), picture);
  }
  return picture;
}

std::vector<Picture> depict(const Report& report, const Alignment& reference, const Alignment& candidate) {
  std::vector<Picture> pictures;
  std::int64_t left = std::numeric_limits<std::int64_t>::max();  // the first is read whatever its size
  for (const Finding* finding : choose(report)) {
    if (pictures.size() == kMostPictures) break;
    const LogicalTensor* from = compared_with(*finding, reference, candidate);
    const LogicalTensor* to = find_tensor(candidate, finding->id);
    if (from == nullptr || to == nullptr) continue;
    const bool copies_differ = finding->difference && !finding->difference->replica_ranks.empty();
    pictures.push_back(depict_tensor(*from, *to, copies_differ ? finding->difference->worst_rank : -1, left));
    if (!pictures.back().without_values.empty()) continue;
    left = std::min(left, kMostElementsRead) - element_count(from->shape);
  }
  return pictures;
}

}  // namespace ttrace
