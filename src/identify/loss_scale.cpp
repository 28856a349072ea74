#include "identify/loss_scale.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/lookup.h"
#include "base/tensor_name.h"
#include "numeric/convert.h"

namespace ttrace {
namespace {

// What numbers of one element may be off where sums are in another order.
constexpr double kPrecisionOfSums = 1e-3;

// True for what the collector calls `loss`. The canonical name of a further model's is `model1.loss`.
bool is_loss_scalar(const TensorId& id) { return id.kind == Kind::kScalar && TensorName(id.name).path == "loss"; }

// The losses of one rank, by iteration and the rank's own number of the micro-batch.
using LossesByMicrobatch = std::map<std::pair<std::int32_t, std::int32_t>, std::vector<const Entry*>>;

LossesByMicrobatch losses_of(const RankTrace& rank) {
  LossesByMicrobatch losses;
  for (const Entry& entry : rank.entries) {
    if (is_loss_scalar(entry.id)) losses[{entry.id.iteration, entry.id.microbatch}].push_back(&entry);
  }
  return losses;
}

bool same_number(const Entry& a, const Entry& b) {
  return a.dtype == b.dtype && a.bytes == b.bytes && a.checksum == b.checksum;
}

// True where the reference's tensor has the bits of a loss of its micro-batch.
bool is_loss_in(const Alignment& reference, const TensorId& id) {
  const LogicalTensor* output = find_tensor(reference, id);
  if (output == nullptr) return false;
  const std::vector<Piece> pieces = output->pieces();
  if (pieces.empty()) return false;
  const TensorId first{.iteration = id.iteration, .microbatch = id.microbatch, .kind = Kind::kScalar, .name = "loss"};
  const auto losses = find_calls(reference, first, Kind::kScalar, "loss");
  return std::ranges::any_of(losses, [&pieces](const LogicalTensor* loss) {
    return same_number(*pieces[0].entry, *loss->pieces().at(0).entry);
  });
}

// True for an output of the whole model or of a module outside of it, which the collector calls by its class.
bool is_final_output(const Group& group) {
  const std::string_view path = TensorName(group.id.name).path;
  return path == kRootModule || path == last_component(group.shards[0].entry->module_class.get());
}

// What a word of the loss scale stands for. A single process, such as the reference, has no such factor: its axes have
// one rank, and it counts no micro-batches.
double size_of_word(const ScaleWord& word, const Mesh& mesh, const Microbatches& microbatches, std::int32_t iteration) {
  if (word.axis) return static_cast<double>(word.axis->size);
  const bool single = std::all_of(mesh.axes.begin(), mesh.axes.end(), [](const Axis& axis) { return axis.size == 1; });
  return single ? 1 : static_cast<double>(word.number.value_or(microbatches_a_rank(microbatches, iteration)));
}

bool holds_one_number(const Group& group) {
  return !group.shards.empty() && std::all_of(group.shards.begin(), group.shards.end(), [](const Shard& shard) {
    return is_floating(shard.entry->dtype) && element_count(shard.entry->shape) == 1;
  });
}

bool is_one_number_in_reference(const Group& group) {
  return group.reference != nullptr && element_count(*group.reference) == 1;
}

// True where each rank has a number of its own, and the reference one: a criterion's value, or an auxiliary loss, of the
// rank's own samples, whatever becomes of it before backward() is called.
bool is_number_of_slice(const Group& group) {
  if (!is_one_number_in_reference(group)) return false;
  const Entry& first = *group.shards[0].entry;
  return std::any_of(group.shards.begin(), group.shards.end(),
                     [&](const Shard& shard) { return !same_number(*shard.entry, first); });
}

double value_at(const std::byte* data, Dtype dtype) {
  double number = 0;
  widen(data, dtype, 1, &number);
  return number;
}

// True where the numbers of the slices add up to the reference's, to what its dtype can hold, and are not all zero: a
// criterion that sums over samples, or what is multiplied by how many there are, which is the same on each rank.
bool adds_up(const Group& group, const RankTable& table, const Microbatches& microbatches, const Alignment& reference) {
  const LogicalTensor* whole = find_tensor(reference, group.id);
  const std::vector<Piece> pieces = whole == nullptr ? std::vector<Piece>() : whole->pieces();
  if (pieces.empty() || whole->sketched) return false;
  std::map<std::int64_t, double> numbers;
  for (const Shard& shard : group.shards) {
    if (shard.entry->sketch) return false;
    const std::byte* data = shard.holder->trace->bytes_of(*shard.entry);
    numbers[coordinate_on(*shard.holder, table, microbatches)] = value_at(data, shard.entry->dtype);
  }
  const double wanted = value_at(pieces[0].elements(), whole->dtype);
  double sum = 0;
  for (const auto& [coordinate, number] : numbers) sum += number;
  const double bound = std::max(kPrecisionOfSums, epsilon_of(group.shards[0].entry->dtype)) * std::fabs(wanted);
  return std::ssize(numbers) == microbatches.ranks && wanted != 0 && std::fabs(sum - wanted) <= bound;
}

}  // namespace

void find_losses(Grouping& grouping, const RankTable& table, const ModelLayout& layout) {
  std::map<const RankTrace*, LossesByMicrobatch> losses;
  const auto is_loss_on_its_rank = [&](const Shard& shard) {
    const RankTrace* rank = shard.holder->trace;
    auto found = losses.find(rank);
    if (found == losses.end()) found = losses.emplace(rank, losses_of(*rank)).first;
    const TensorId& id = shard.entry->id;
    const std::vector<const Entry*>& of_microbatch = found->second[{id.iteration, id.microbatch}];
    return std::any_of(of_microbatch.begin(), of_microbatch.end(),
                       [&](const Entry* loss) { return same_number(*shard.entry, *loss); });
  };
  std::set<TensorId> found, sums;
  for (Group& group : grouping.groups) {
    const bool is_output = group.id.kind == Kind::kOutput;
    if (!(is_output || group.id.kind == Kind::kInput) || group.id.microbatch < 0 || !holds_one_number(group)) continue;
    const bool are_slices = grouping.microbatches.is_sliced(group.id.iteration, group.id.microbatch);
    const bool of_slice = are_slices && is_output && is_final_output(group) && is_number_of_slice(group);
    const bool is_loss = is_output && layout.reference != nullptr && is_loss_in(*layout.reference, group.id) &&
                         std::all_of(group.shards.begin(), group.shards.end(), is_loss_on_its_rank);
    if (!is_loss && are_slices && is_one_number_in_reference(group) && layout.reference != nullptr &&
        adds_up(group, table, grouping.microbatches, *layout.reference)) {
      group.loss = LossRole::kTermOfSum;
      sums.insert(group.id);
      continue;
    }
    if (of_slice || is_loss) {
      group.loss = LossRole::kLoss;
    } else if (are_slices && is_number_of_slice(group)) {
      group.loss = LossRole::kLikeLoss;
    } else {
      continue;
    }
    found.insert(group.id);
  }
  for (Group& group : grouping.groups) {
    const Kind value = group.id.kind == Kind::kGradOutput ? Kind::kOutput : Kind::kInput;
    const bool is_gradient = group.id.kind == Kind::kGradOutput || group.id.kind == Kind::kGradInput;
    if (is_gradient && found.contains(group.id.with_kind(value))) group.loss = LossRole::kGradient;
    if (is_gradient && sums.contains(group.id.with_kind(value))) group.loss = LossRole::kGradientOfSum;
    if (!group.shards.empty() && is_loss_scalar(group.shards[0].entry->id)) group.loss = LossRole::kLoss;
  }
}

double scale_of(const ResolvedAnnotations& annotations, const Microbatches& microbatches, const TensorId& id,
                const TensorPlacement& placement, LossRole role) {
  double scale = 1;
  for (const AxisUse& use : placement.uses) {
    if (use.mean) scale *= static_cast<double>(use.split.size);
  }
  const bool gradient = id.kind == Kind::kGradOutput || id.kind == Kind::kGradInput || id.kind == Kind::kParamGrad;
  const bool scaled = is_term_of_loss(role) || (gradient && role != LossRole::kGradient) || is_loss_scalar(id);
  if (!scaled) return scale;
  const auto& some = annotations.said.scale_of_some;
  const bool is_of_some = some && some->microbatches.contains({id.iteration, id.microbatch});
  const ResolvedScale& loss_scale = is_of_some ? annotations.scale_of_some : annotations.loss_scale;
  const auto size = [&](const ScaleWord& word) {
    return size_of_word(word, annotations.mesh, microbatches, id.iteration);
  };
  for (const ScaleWord& word : loss_scale.numerator) scale *= size(word);
  for (const ScaleWord& word : loss_scale.denominator) scale /= size(word);
  return scale;
}

}  // namespace ttrace
