#include "correspond/sums.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace ttrace {
namespace {

bool is_of_microbatch(const TensorId& id) { return id.kind == Kind::kParamGrad && id.microbatch != kNoMicrobatch; }

// The groups of which the candidate has sums over the micro-batches.
std::set<GroupKey> summed_groups(const SideNames& names, const Alignment& candidate) {
  std::set<GroupKey> groups;
  const auto add_if_sum = [&](const TensorId& id) {
    if (id.kind != Kind::kParamGrad || id.microbatch != kNoMicrobatch) return;
    for (Claim& claim : names.claims(id)) groups.insert(std::move(claim.key));
  };
  for (const auto& [id, tensor] : candidate.tensors) add_if_sum(id);
  for (const Finding& finding : candidate.findings) add_if_sum(finding.id);  // sums that are not whole
  return groups;
}

// The sum of tensors of one shape, dtype and factor.
LogicalTensor sum_of(const TensorId& id, const std::vector<const LogicalTensor*>& tensors) {
  LogicalTensor sum = *tensors.front();
  sum.id = id;
  sum.bytes = 0;
  std::vector<std::function<std::vector<Piece>()>> makers;
  for (const LogicalTensor* tensor : tensors) {
    makers.push_back(tensor->pieces);
    sum.bytes += tensor->bytes;
    sum.sketched |= tensor->sketched;
    sum.order = std::min(sum.order, tensor->order);
  }
  sum.pieces = [makers = std::move(makers)] {
    std::vector<Piece> pieces;
    std::int32_t first_term = 0;
    for (const auto& make : makers) {
      std::int32_t terms = 0;
      for (Piece& piece : make()) {
        terms = std::max(terms, piece.term + 1);
        piece.term += first_term;
        pieces.push_back(std::move(piece));
      }
      first_term += terms;
    }
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return std::tie(a.replica, a.term, a.logical.start) < std::tie(b.replica, b.term, b.logical.start);
    });
    return pieces;
  };
  return sum;
}

}  // namespace

Alignment summed_as_in_candidate(const SideNames& reference_names, const Alignment& reference,
                                 const SideNames& candidate_names, const Alignment& candidate) {
  Alignment result = reference;
  const std::set<GroupKey> groups = summed_groups(candidate_names, candidate);
  if (groups.empty()) return result;
  std::map<TensorId, std::vector<const LogicalTensor*>> terms;  // by the sum's identity, in order of the micro-batches
  for (const auto& [id, tensor] : reference.tensors) {
    if (!is_of_microbatch(id)) continue;
    TensorId sum = id;
    sum.microbatch = kNoMicrobatch;
    const std::vector<Claim> claims = reference_names.claims(sum);
    const bool is_summed =
        std::any_of(claims.begin(), claims.end(), [&](const Claim& claim) { return groups.contains(claim.key); });
    if (is_summed) terms[sum].push_back(&tensor);
  }
  for (const auto& [id, tensors] : terms) {
    const LogicalTensor& first = *tensors.front();
    const bool alike = std::all_of(tensors.begin(), tensors.end(), [&](const LogicalTensor* tensor) {
      return tensor->shape == first.shape && tensor->dtype == first.dtype && tensor->scale == first.scale;
    });
    if (!alike || result.tensors.contains(id)) continue;
    result.tensors.emplace(id, sum_of(id, tensors));
    for (const LogicalTensor* tensor : tensors) result.tensors.erase(tensor->id);
  }
  return result;
}

}  // namespace ttrace
