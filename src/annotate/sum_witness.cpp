#include "annotate/sum_witness.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

bool is_activation(Kind kind) {
  return kind == Kind::kInput || kind == Kind::kOutput || kind == Kind::kGradInput || kind == Kind::kGradOutput;
}

}  // namespace

SumWitness::SumWitness(const Subjects& subjects, const Decisions& decisions, const Alignment& reference)
    : subjects_(subjects), decisions_(decisions) {
  for (const auto& [id, tensor] : reference.tensors) {
    if (!is_activation(id.kind) || !is_floating(tensor.dtype)) continue;
    const std::vector<Piece> pieces = tensor.pieces();
    if (pieces.size() != 1) continue;
    const SubjectKey key = {pattern_of(id.name), id.kind};
    const Bits bits = {id.iteration, id.microbatch, pieces[0].entry->checksum};
    bits_.try_emplace(key, bits);
    same_[bits].push_back(key);
  }
}

void SumWitness::doubt_sums(const SubjectKey& key, const Decision& decision, std::vector<AxisObservation>& axes) const {
  for (AxisObservation& axis : axes) {
    if (axis.placement.placement != Placement::kPartial) continue;
    const std::string witness = find_witness(key, axis.placement.axis, decision.best().fit.error());
    axis.certain = axis.certain && !witness.empty();
    axis.why += witness.empty() ? "; a forgotten sum looks the same" : fmt::format("; {} is whole", witness);
  }
}

std::string SumWitness::find_witness(const SubjectKey& key, const std::string& axis, double error) const {
  const auto& [pattern, kind] = key;
  if (kind == Kind::kParamGrad) {
    const Decision* main_grad = find_decision(decisions_, pattern, Kind::kMainGrad);
    return main_grad != nullptr && main_grad->near_reference ? "the main gradient" : "";
  }
  if (!is_activation(kind)) return "";
  const bool forward = kind == Kind::kInput || kind == Kind::kOutput;
  const Kind later = forward ? Kind::kOutput : Kind::kGradInput;
  std::string path(TensorName(pattern).path);
  for (bool inside = kind == later;; inside = true) {
    if (inside) path = owner_of(path);
    if (const auto right = shows_sum({path, later}, axis, error)) {
      return *right ? fmt::format("what {} {}", path, forward ? "returns" : "sends back") : "";
    }
    if (path == kRootModule) return find_same_tensor(key, axis, error);
  }
}

std::optional<bool> SumWitness::shows_sum(const SubjectKey& key, const std::string& axis, double error) const {
  const Decision* decision = find_decision(decisions_, key.first, key.second);
  if (decision == nullptr || role_of(decision->best().axes, axis) == "partial") return std::nullopt;
  const double epsilon = epsilon_of(decision->search->dtype);
  const Fit& fit = decision->best().fit;
  // Copies that differ by more than rounding are no sum, however near the reference each of them is.
  const bool is_whole = !clearly_better(0, fit.disagreement(), epsilon);
  return decision->near_reference && is_whole && !clearly_better(error, fit.error(), epsilon);
}

std::string SumWitness::find_same_tensor(const SubjectKey& key, const std::string& axis, double error) const {
  const auto bits = bits_.find(key);
  if (bits == bits_.end()) return "";
  for (const SubjectKey& other : same_.at(bits->second)) {
    if (other != key && first_recorded(other) > first_recorded(key) && shows_sum(other, axis, error).value_or(false)) {
      return fmt::format("{} {}, the same tensor,", other.first, name_of(other.second));
    }
  }
  return "";
}

std::uint64_t SumWitness::first_recorded(const SubjectKey& key) const {
  std::uint64_t order = std::numeric_limits<std::uint64_t>::max();
  const auto subject = subjects_.find(key);
  if (subject == subjects_.end()) return 0;
  for (const RecordedShard& shard : subject->second.shards) order = std::min(order, shard.entry->order);
  return order;
}

}  // namespace ttrace
