#include "diagnose/own_buffers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "align/recorded_bits.h"
#include "base/lookup.h"
#include "base/tensor_name.h"
#include "merge/values.h"

namespace ttrace {
namespace {

// Classes of modules that normalise by the statistics of their batch, by the last component of their names.
constexpr auto kBatchStatistics =
    std::to_array<std::string_view>({"BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "BatchNormAct2d", "LazyBatchNorm1d",
                                     "LazyBatchNorm2d", "LazyBatchNorm3d"});

// A copy that has taken its rank's own samples alone is not the reference's by as little as so many roundings.
constexpr double kRounding = 64;

// True where the copies are terms of the reference's, or one of them is the reference's.
bool is_known_of_copies(const Finding& finding, const LogicalTensor& tensor, const Evidence& evidence) {
  const std::optional<Diagnosis> diagnosis = diagnose(finding, true, evidence);
  if (diagnosis && diagnosis->cause == Cause::kUnreduced) return true;
  const LogicalTensor* reference = find_tensor(evidence.reference, finding.id);
  if (reference == nullptr || reference->shape != tensor.shape || reference->sketched || tensor.sketched) return false;
  const Values wanted = values_of(*reference);
  const double rounding = kRounding * epsilon_of(tensor.dtype);
  std::set<std::int32_t> replicas;
  for (const Piece& piece : tensor.pieces()) replicas.insert(piece.replica);
  return std::any_of(replicas.begin(), replicas.end(), [&](std::int32_t replica) {
    return relative_distance(values_of(tensor, replica), wanted) <= std::max(finding.allowed.value_or(0), rounding);
  });
}

// True for what some ranks lack of a model that no optimizer updates, where each of them has updated another such model:
// it keeps them, as the others do, and forgot this one. A rank that has updated none may keep none.
bool is_forgotten(const Finding& finding, const Evidence& evidence) {
  if (finding.reason != Reason::kOmission || finding.ranks.empty()) return false;
  std::set<std::int32_t> keeping;
  for (const auto& [id, tensor] : evidence.candidate.tensors) {
    if (id.kind != Kind::kBufferAfter || id.iteration != finding.id.iteration ||
        !is_of_other_model(evidence.reference, id))
      continue;
    for (const Piece& piece : tensor.pieces()) keeping.insert(piece.rank);
  }
  return std::all_of(finding.ranks.begin(), finding.ranks.end(),
                     [&](std::int32_t rank) { return keeping.contains(rank); });
}

// True where a later iteration changes what this one leaves: the candidate keeps it.
bool is_kept_later(const TensorId& id, const Alignment& candidate) {
  return std::ranges::any_of(candidate.tensors, [&](const auto& item) {
    const TensorId& other = item.first;
    return other.iteration > id.iteration && other.kind == id.kind && other.name == id.name && other.chunk == id.chunk;
  });
}

// Returns what the buffer holds before the iteration, in a light one what the iteration before has left; null: not known.
const LogicalTensor* value_before(TensorId id, const Alignment& side) {
  if (const LogicalTensor* before = find_tensor(side, id.with_kind(Kind::kBuffer))) return before;
  --id.iteration;
  return find_tensor(side, id.with_kind(Kind::kBufferAfter));
}

bool are_copies(const LogicalTensor& tensor) {
  const std::vector<Piece> pieces = tensor.pieces();
  return pieces.size() > 1 && std::ranges::all_of(pieces, [&](const Piece& piece) {
           return piece.entry != nullptr && piece.entry->checksum == pieces.front().entry->checksum;
         });
}

// True where an earlier iteration has changed the buffer and left all ranks the same, bit for bit: what each takes of its
// own samples would have been another on each.
bool were_copies(TensorId id, const Alignment& candidate) {
  constexpr std::int64_t kFewestElements = 8;  // a count of samples may be the same on all ranks
  while (id.kind == Kind::kBufferAfter && id.iteration-- > 0) {
    const LogicalTensor *before = value_before(id, candidate), *after = find_tensor(candidate, id);
    if (before == nullptr || after == nullptr || !is_floating(after->dtype)) continue;
    const bool is_changed = before->pieces().front().entry->checksum != after->pieces().front().entry->checksum;
    if (is_changed && element_count(after->shape) >= kFewestElements && are_copies(*after)) return true;
  }
  return false;
}

// True for a cache, by its name, of which each rank has filled what it needs: where it is not the reference's, it is zero,
// and was before.
bool is_filled_in_part(const TensorId& id, const Evidence& evidence) {
  const LogicalTensor* before = value_before(id, evidence.candidate);
  const LogicalTensor* after = find_tensor(evidence.candidate, id);
  const LogicalTensor* reference = find_tensor(evidence.reference, id);
  const bool is_cache = last_component(id.name.get()).find("cache") != std::string_view::npos;
  if (!is_cache || id.kind != Kind::kBufferAfter || before == nullptr || after == nullptr || reference == nullptr)
    return false;
  const bool are_whole = !before->sketched && !after->sketched && !reference->sketched;
  if (!are_whole || before->shape != after->shape || reference->shape != after->shape) return false;
  const Values wanted = values_of(*reference);
  const double rounding = kRounding * epsilon_of(after->dtype);
  const std::vector<Piece> pieces = after->pieces();
  return std::ranges::all_of(pieces, [&](const Piece& piece) {
    const Values from = values_of(*before, piece.replica), to = values_of(*after, piece.replica);
    for (std::size_t i = 0; i < to.size(); ++i) {
      const bool is_right = std::abs(to[i] - wanted[i]) <= rounding * std::abs(wanted[i]);
      if (!is_right && (to[i] != 0 || from[i] != 0)) return false;
    }
    return true;
  });
}

// True for a count to which each rank has added as much of what the reference has added as is its own.
bool counts_own_samples(const TensorId& id, const Evidence& evidence) {
  const auto added = [&](const Alignment& side) {
    const LogicalTensor* before = find_tensor(side, id.with_kind(Kind::kBuffer));
    const LogicalTensor* after = find_tensor(side, id.with_kind(Kind::kBufferAfter));
    Values change = after == nullptr ? Values{} : values_of(*after);
    const Values from = before == nullptr ? Values{} : values_of(*before);
    if (from.size() != change.size()) return Values{};
    std::transform(change.begin(), change.end(), from.begin(), change.begin(), std::minus());
    return change;
  };
  const Values own = added(evidence.candidate), whole = added(evidence.reference);
  double ranks = 1;
  for (const Axis& axis : evidence.mesh.axes) ranks *= static_cast<double>(axis.size);
  return !own.empty() && own.size() == whole.size() &&
         std::equal(own.begin(), own.end(), whole.begin(), [&](double part, double all) {
           return part == all || (part != 0 && all / part > 1 && all / part <= ranks && std::fmod(all, part) == 0);
         });
}

// True for a buffer of a model beside the trained one, such as an average of it, where the trained one has a buffer of the
// name and ranks agree on that: what they take of their own samples in training would be in both.
bool is_beside_equal_ones(const TensorId& id, const Evidence& evidence) {
  const std::vector<std::string_view> names = suffixes_of(id.name.get());  // the first is whole
  if (names.size() < 2 || !is_of_other_model(evidence.reference, id)) return false;
  TensorId trained = id;
  trained.name = std::string(names[1]);
  const LogicalTensor* tensor = find_tensor(evidence.candidate, trained);
  if (tensor == nullptr) return false;
  return are_copies(*tensor);
}

}  // namespace

bool takes_batch_statistics(std::string_view module_class) {
  return std::find(kBatchStatistics.begin(), kBatchStatistics.end(), last_component(module_class)) !=
         kBatchStatistics.end();
}

bool is_changed_in_candidate_alone(const TensorId& after, const Evidence& evidence) {
  const Alignment& candidate = evidence.candidate;
  const bool is_known = after.kind == Kind::kBufferAfter && find_tensor(candidate, after) != nullptr &&
                        find_tensor(candidate, after.with_kind(Kind::kBuffer)) != nullptr;
  return is_known && is_constant_buffer(evidence.reference, after) && !is_constant_buffer(candidate, after);
}

bool deals_microbatches(const Alignment& alignment) {
  std::map<std::int32_t, std::set<std::int32_t>> by_rank;
  std::set<std::int32_t> all;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (id.kind != Kind::kInput && id.kind != Kind::kOutput) continue;
    all.insert(id.microbatch);
    for (const Piece& piece : tensor.pieces()) by_rank[piece.rank].insert(id.microbatch);
  }
  return std::any_of(by_rank.begin(), by_rank.end(), [&](const auto& item) { return item.second.size() < all.size(); });
}

std::optional<Reason> own_buffer(const Finding& finding, const BesideBuffer& beside, const Evidence& evidence) {
  const TensorId& id = finding.id;
  const LogicalTensor* tensor = find_tensor(evidence.candidate, id);
  if (is_constant_buffer(evidence.candidate, id) && is_constant_buffer(evidence.reference, id)) {
    return beside.explains_others ? std::nullopt : std::optional(Reason::kOwnStatistics);
  }
  if (is_filled_in_part(id, evidence)) return Reason::kOwnStatistics;
  if (finding.verdict == Verdict::kMissing && !is_of_other_model(evidence.reference, id)) return std::nullopt;
  if (tensor == nullptr) {
    const bool may_be_kept_otherwise =
        beside.is_alone && !is_forgotten(finding, evidence) && !is_kept_later(id, evidence.candidate);
    return may_be_kept_otherwise ? std::optional(Reason::kOwnNumbers) : std::nullopt;
  }
  const bool is_initial = id.kind == Kind::kBuffer && id.iteration == 0;
  const bool is_shared_out = beside.is_dealt || evidence.candidate.slices;
  const bool is_statistic = takes_batch_statistics(tensor->module_class.get());
  if (is_statistic && is_changed_in_candidate_alone(id, evidence)) return std::nullopt;  // it is in the other mode
  if (is_shared_out && !is_initial && is_statistic && !is_beside_equal_ones(id, evidence)) {
    return Reason::kOwnStatistics;
  }
  if (finding.reason == Reason::kShapeMismatch || finding.reason == Reason::kOverlap) return Reason::kOwnNumbers;
  if (beside.is_dealt && !is_initial && !is_of_other_model(evidence.reference, id)) return Reason::kOwnNumbers;
  if (finding.reason == Reason::kReplicasDisagree && were_copies(id, evidence.candidate)) return std::nullopt;
  if (beside.follows_steps && finding.reason == Reason::kReplicasDisagree &&
      is_of_other_model(evidence.reference, id)) {
    return std::nullopt;  // an average of parameters that differ
  }
  const bool may_be_own = finding.reason == Reason::kReplicasDisagree
                              ? !is_floating(tensor->dtype) || !is_known_of_copies(finding, *tensor, evidence)
                              : finding.reason == Reason::kIntegerDiffers && counts_own_samples(id, evidence);
  return may_be_own ? std::optional(Reason::kOwnNumbers) : std::nullopt;
}

}  // namespace ttrace
