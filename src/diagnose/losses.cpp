// Tests whether ranks took a loss over their own parts. Of n terms l_i, of which n_r lie on rank r, these are
//
//   the mean                      (1 / n) sum of all l_i
//   the mean of R ranks' means    (1 / R) sum over r of (1 / n_r) sum of rank r's l_i
//
// and they are the same only where every rank holds equally many. Where not, rank r's part of the gradient has the factor
// n / (R n_r). What the loss makes of each element, the reference tells: its terms make its value. Which rank holds
// which, the candidate's operands tell.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/lookup.h"
#include "base/tensor_name.h"
#include "diagnose/hypothesis.h"
#include "diagnose/loss_terms.h"

namespace ttrace {
namespace {

constexpr std::size_t kMostLossAxes = 6;  // whose combinations are tried
constexpr std::size_t kMostListed = 8;    // numbers in a sentence

// The row of scores that an element of an operand belongs to.
std::size_t row_of(std::int64_t element, const Slices& classes) {
  return static_cast<std::size_t>(element / (classes.extent * classes.inner) * classes.inner + element % classes.inner);
}

// Returns, by row of scores, the first rank that holds some of it.
std::vector<std::int32_t> ranks_of_rows(const LogicalTensor& operand, const Slices& classes) {
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(classes.outer * classes.inner), INT32_MAX);
  for (const LocalTensor& local : local_tensors_of(operand)) {
    for (const std::int64_t place : local.positions) {
      if (place < 0) continue;
      std::int32_t& rank = ranks[row_of(place, classes)];
      rank = std::min(rank, local.rank);
    }
  }
  return ranks;
}

// The terms on the ranks that have the same coordinates on some axes.
struct PartOfRanks {
  std::int32_t rank = 0;  // the first of them
  LossPart terms;
};

struct Partition {
  Axes axes;
  bool is_finest = false;   // along all axes that split the operand
  bool is_by_rank = false;  // and no two ranks hold the same
  std::vector<PartOfRanks> parts;
  std::vector<std::size_t> of_row;  // the index of its part, by row
};

void part_terms(const LossTerms& terms, const std::vector<std::int32_t>& ranks, const Axes& all, Partition& partition) {
  std::map<std::int32_t, std::size_t> of_rank;
  std::map<std::vector<std::int64_t>, std::size_t> of_place;  // by the coordinates on the partition's axes
  for (const std::int32_t rank : std::set(ranks.begin(), ranks.end())) {
    const Coordinates coordinates = coordinates_of(all, rank);
    std::vector<std::int64_t> place;
    for (const Axis& axis : partition.axes) place.push_back(coordinates.at(axis.name));
    const auto [at, is_new] = of_place.try_emplace(place, partition.parts.size());
    if (is_new) partition.parts.push_back({rank, {}});
    of_rank[rank] = at->second;
  }
  for (std::size_t row = 0; row < terms.size(); ++row) {
    partition.of_row.push_back(of_rank[ranks[row]]);
    partition.parts[partition.of_row.back()].terms.add(terms[row]);
  }
}

// Returns how the ranks that hold an operand part the terms: along all axes that split it, then along some of them.
std::vector<Partition> partitions_by(const LogicalTensor& operand, const Slices& classes, const LossTerms& terms,
                                     const Mesh& mesh) {
  const std::vector<std::int32_t> ranks = ranks_of_rows(operand, classes);
  const Axes all = factorings_of(mesh)[operand.factoring];
  std::int64_t world_size = 1;
  std::map<std::string, std::set<std::int64_t>> coordinates;
  for (const Axis& axis : all) world_size *= axis.size;
  for (const std::int32_t rank : std::set(ranks.begin(), ranks.end())) {
    for (const auto& [axis, coordinate] : coordinates_of(all, rank)) coordinates[axis].insert(coordinate);
  }
  Axes splitting = all;
  std::erase_if(splitting, [&](const Axis& axis) { return coordinates[axis.name].size() < 2; });
  std::vector<Partition> partitions;
  if (splitting.size() > kMostLossAxes) return partitions;
  const std::size_t finest = (std::size_t{1} << splitting.size()) - 1;
  for (std::size_t chosen = finest; chosen > 0; --chosen) {
    Partition partition;
    partition.is_finest = chosen == finest;
    for (std::size_t i = 0; i < splitting.size(); ++i) {
      if ((chosen >> i & 1) != 0) partition.axes.push_back(splitting[i]);
    }
    part_terms(terms, ranks, all, partition);
    partition.is_by_rank = static_cast<std::int64_t>(partition.parts.size()) == world_size;
    partitions.push_back(std::move(partition));
  }
  return partitions;
}

// A loss as the candidate's ranks hold it.
struct LossOfRanks {
  std::int64_t count = 0;  // of the terms
  std::vector<Partition> partitions;
};

std::optional<LossOfRanks> find_parts(const Loss& loss, const Evidence& evidence, const TensorId& id) {
  struct Operand {
    const LogicalTensor* used = nullptr;  // by the loss
    const LogicalTensor* own = nullptr;
  };
  const auto find_operand = [&](const TensorId& operand) {
    TensorId own = id;
    own.kind = operand.kind;
    own.name = operand.name;
    const LogicalTensor* reference = &evidence.reference.tensors.at(operand);
    const LogicalTensor* found = find_tensor(evidence.candidate, own);
    const bool fits = found != nullptr && is_small(*found) && found->shape == reference->shape;
    return fits ? Operand{evidence.rewritten ? reference : found, found} : Operand{};
  };
  const Operand prediction = find_operand(loss.prediction), target = find_operand(loss.target);
  if (prediction.own == nullptr || target.own == nullptr) return std::nullopt;
  const LossTerms terms = terms_of(loss, *prediction.used, *target.used);
  if (terms.empty()) return std::nullopt;
  const Slices classes = loss.classes_in(prediction.own->shape);
  Slices rows = classes;
  rows.extent = 1;
  LossOfRanks result{0, partitions_by(*prediction.own, classes, terms, evidence.mesh)};
  for (const std::optional<double>& term : terms) result.count += term.has_value();
  for (Partition& partition : partitions_by(*target.own, rows, terms, evidence.mesh)) {
    result.partitions.push_back(std::move(partition));
  }
  return result;
}

std::string describe_ranks_of(const Partition& partition) {
  if (partition.is_by_rank) return fmt::format("the {} ranks' means", partition.parts.size());
  std::vector<std::string> names;
  names.reserve(partition.axes.size());
  for (const Axis& axis : partition.axes) names.push_back(axis.name);
  return fmt::format("the means of the {} ranks of {}", partition.parts.size(), fmt::join(names, " and "));
}

std::string describe_counts(const std::vector<PartOfRanks>& parts) {
  std::vector<std::int64_t> counts;
  counts.reserve(parts.size());
  for (const PartOfRanks& part : parts) counts.push_back(part.terms.count);
  if (counts.size() > kMostListed) {
    const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    return fmt::format("{} to {}", *least, *most);
  }
  const std::int64_t last = counts.back();
  counts.pop_back();
  return fmt::format("{} and {}", fmt::join(counts, ", "), last);
}

std::string describe_means(const Partition& partition, const LossOfRanks& of_ranks, const Loss& loss) {
  return fmt::format("the mean of {}, which hold {} of the {} {}: each weighs the same, whatever it holds",
                     describe_ranks_of(partition), describe_counts(partition.parts), of_ranks.count, loss.unit());
}

struct LossPrediction {
  Cause cause = Cause::kMeanOfMeans;
  double value = 0;
  std::string what;
};

// Returns what the candidate's value would be, one prediction for each value.
std::vector<LossPrediction> predictions_of(const Loss& loss, const LossOfRanks& of_ranks) {
  std::vector<LossPrediction> predictions;
  const auto add = [&](Cause cause, double value, std::string what) {
    const bool is_known = std::any_of(predictions.begin(), predictions.end(),
                                      [&](const LossPrediction& known) { return known.value == value; });
    if (std::isfinite(value) && !is_known) predictions.push_back({cause, value, std::move(what)});
  };
  for (const Partition& partition : of_ranks.partitions) {
    if (!loss.is_mean) break;
    double sum = 0;
    for (const PartOfRanks& part : partition.parts) sum += part.terms.mean();
    add(Cause::kMeanOfMeans, sum / static_cast<double>(partition.parts.size()),
        fmt::format("it is {}", describe_means(partition, of_ranks, loss)));
  }
  for (const Partition& partition : of_ranks.partitions) {
    if (!partition.is_finest) continue;
    for (const PartOfRanks& part : partition.parts) {
      add(Cause::kMissingContribution, loss.is_mean ? part.terms.mean() : part.terms.sum,
          fmt::format("it is the {} over the part of rank {} alone, which holds {} of the {} {}",
                      loss.is_mean ? "mean" : "sum", part.rank, part.terms.count, of_ranks.count, loss.unit()));
    }
  }
  return predictions;
}

// Returns the mean, of which the tensor `gradient` is the gradient by the prediction.
std::optional<Loss> find_mean_of(const Alignment& alignment, const TensorId& gradient, double bound) {
  const std::string call = TensorName(gradient.name).without_member();
  const Kind kind = gradient.kind == Kind::kGradInput ? Kind::kInput : Kind::kOutput;
  for (const auto& [id, tensor] : alignment.tensors) {
    const bool is_returned = id.kind == Kind::kOutput && id.iteration == gradient.iteration &&
                             id.microbatch == gradient.microbatch && id.pass == gradient.pass &&
                             TensorName(id.name).without_member() == call;
    if (!is_returned || !is_small(tensor) || element_count(tensor.shape) != 1) continue;
    const double value = values_of(tensor)[0];
    const std::optional<Loss> loss = find_loss(alignment, id, value, bound * std::abs(value));
    if (loss && loss->is_mean && loss->prediction.kind == kind && loss->prediction.name == gradient.name) return loss;
  }
  return std::nullopt;
}

}  // namespace

// One number is near another by chance more often than many are. So both, the reference's and the candidate's, must be
// met to within a smaller share of the error, and to a smaller one still where there are many predictions.
std::optional<Diagnosis> loss_of_parts(const Suspect& suspect) {
  if (suspect.finding.id.kind != Kind::kOutput || suspect.candidate_values.size() != 1) return std::nullopt;
  const double reference = suspect.reference_values[0], candidate = suspect.candidate_values[0];
  const double most = std::abs(candidate - reference) * kLargestShareLeft / static_cast<double>(kFewestValues);
  const std::optional<Loss> loss = find_loss(suspect.evidence.reference, suspect.reference.id, reference, most);
  if (!loss) return std::nullopt;
  const std::optional<LossOfRanks> of_ranks = find_parts(*loss, suspect.evidence, suspect.candidate.id);
  if (!of_ranks) return std::nullopt;
  const std::vector<LossPrediction> predictions = predictions_of(*loss, *of_ranks);
  for (const LossPrediction& prediction : predictions) {
    if (std::abs(candidate - prediction.value) > most / static_cast<double>(predictions.size())) continue;
    if (auto found = suspect.explained_by(prediction.cause, Values{prediction.value}, prediction.what)) return found;
  }
  return std::nullopt;
}

std::optional<Diagnosis> gradient_of_means(const Suspect& suspect) {
  const TensorId& id = suspect.reference.id;
  if (id.kind != Kind::kGradInput && id.kind != Kind::kGradOutput) return std::nullopt;
  const std::optional<Loss> loss = find_mean_of(suspect.evidence.reference, id, suspect.bound);
  if (!loss) return std::nullopt;
  const std::optional<LossOfRanks> of_ranks = find_parts(*loss, suspect.evidence, suspect.candidate.id);
  if (!of_ranks) return std::nullopt;
  const Slices classes = loss->classes_in(suspect.reference.shape);
  for (const Partition& partition : of_ranks->partitions) {
    const double even = static_cast<double>(of_ranks->count) / static_cast<double>(partition.parts.size());
    Values prediction = suspect.reference_values;
    for (std::size_t i = 0; i < prediction.size(); ++i) {
      const PartOfRanks& part = partition.parts[partition.of_row[row_of(static_cast<std::int64_t>(i), classes)]];
      prediction[i] *= even / static_cast<double>(part.terms.count);
    }
    const std::string what = fmt::format("it is the gradient of {}", describe_means(partition, *of_ranks, *loss));
    if (auto found = suspect.explained_by(Cause::kMeanOfMeans, prediction, what)) return found;
  }
  return std::nullopt;
}

std::string describe_mean_of_none(const LogicalTensor& reference, const LogicalTensor& candidate, double bound,
                                  const Evidence& evidence) {
  const bool is_number = candidate.id.kind == Kind::kOutput && is_small(reference) && is_small(candidate) &&
                         element_count(reference.shape) == 1 && element_count(candidate.shape) == 1;
  if (!is_number || !std::isnan(values_of(candidate)[0])) return {};
  const double value = values_of(reference)[0];
  const std::optional<Loss> loss = find_loss(evidence.reference, reference.id, value, bound * std::abs(value));
  if (!loss || !loss->is_mean) return {};
  const std::optional<LossOfRanks> of_ranks = find_parts(*loss, evidence, candidate.id);
  if (!of_ranks) return {};
  for (const Partition& partition : of_ranks->partitions) {
    for (const PartOfRanks& part : partition.parts) {
      if (part.terms.count > 0) continue;
      return fmt::format(": rank {} holds none of the {} {}, and a mean of none is NaN", part.rank, of_ranks->count,
                         loss->unit());
    }
  }
  return {};
}

}  // namespace ttrace
