// A factor of 1.004 in the gradients of one kind of weight is in every layer, and too near to 1 to be seen in any of
// them: a single gradient's scale moves by as much. That of all layers together should tell. It does not: errors of
// layers are no independent samples. What scales the gradient of the loss scales the gradients of all weights, and of
// 16 layers (a GPT in bf16) their mean moves by as much as a single one, 0.001, in perturbed runs as in correct
// candidates.
//
// But what the layers have in common, the tensors of one layer have in common, too. So the scale of a tensor is held
// against that of the others of its kind in its layer, in the same micro-batch and iteration:
//
//   contrast_i = scale_i - median over the other groups of the layer      a group: names that differ in numbers alone
//   mean       = of the contrasts of a group, over layers, micro-batches and iterations
//
// The median, since some of the others may be wrong as well. Contrasts of layers are nearly independent. What is left
// is measured, since each perturbed run has the same means:
//
//   spread    = root mean square of a group's contrasts over the perturbed runs, the rerun's if larger, and the largest
//               floor of the scale of its tensors if that is
//   inflation = mean over the groups of a kind and the runs of members * mean^2 / spread^2, at least 1: it is 1 where
//               contrasts are independent, and as many as there are members where a group has one
//   allowed   = max(floor, t * sqrt(inflation / members) * max(spread, scatter))
//
// scatter is the candidate's own, about its mean: one whose noise is larger, or that has one large error in one place,
// has a larger mean by chance. An error that all members share leaves it alone. t is that of the scale: what Student's
// t exceeds with probability kTestLevel; the degrees of freedom are the runs times the groups less one, since the
// inflation comes from these, or times the members where these are fewer. Groups of equal means (a container has its
// last module's output) count once. Over 53 correct parallel runs (GPT and experts, 2 to 16 layers, bf16 and fp32) the
// largest mean of 3,000 is 4.7 times its standard error, and 0.50 of what is allowed.
//
// What a norm's gradient is rounded by where its sum is (own_sums.cpp) has one sign in all layers, and no number of
// them makes it smaller: that is the floor, as many times as the margin says. An optimizer's step is left out for the
// same reason: where signs turn it only shrinks. A factor in all tensors of a kind is not seen here: it moves the
// median.
#include "tolerance/coherence.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/tensor_name.h"
#include "tolerance/estimate_coherence.h"

namespace ttrace {
namespace {

constexpr std::array kKinds = {Kind::kOutput,    Kind::kInput,     Kind::kGradOutput,
                               Kind::kGradInput, Kind::kParamGrad, Kind::kMainGrad};

// The tensors of one kind, layer, micro-batch and iteration.
using Layer = std::tuple<Kind, std::string, std::int64_t, std::int32_t, std::int32_t>;

std::optional<Layer> layer_of(const TensorId& id) {
  const std::optional<NameNumber> number = number_in(id.name);
  if (!number || id.pass == Pass::kRecompute) return std::nullopt;
  if (std::find(kKinds.begin(), kKinds.end(), id.kind) == kKinds.end()) return std::nullopt;
  return Layer{id.kind, std::string(number->prefix), number->value, id.iteration, id.microbatch};
}

using Groups = std::map<std::string, std::vector<std::size_t>>;  // of one layer: places of tensors

std::map<Layer, Groups> layers_of(std::span<const TensorScale> tensors) {
  std::map<Layer, Groups> layers;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (const auto layer = layer_of(tensors[i].id)) {
      layers[*layer][without_numbers(tensors[i].id.name)].push_back(i);
    }
  }
  std::erase_if(layers, [](const auto& item) { return item.second.size() < kLeastGroups; });
  return layers;
}

// Returns the median of all values but that at `left_out`, of two or more.
double median_without(const std::vector<double>& values, std::size_t left_out) {
  std::vector<double> others = values;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(left_out));
  std::sort(others.begin(), others.end());
  const std::size_t half = others.size() / 2;
  return others.size() % 2 == 1 ? others[half] : (others[half - 1] + others[half]) / 2;
}

double square_of(std::span<const Contrast> contrasts) {
  return std::accumulate(contrasts.begin(), contrasts.end(), 0.0,
                         [](double sum, const Contrast& one) { return sum + one.value * one.value; });
}

double scatter_of(std::span<const Contrast> contrasts) {
  if (contrasts.size() < 2) return 0;
  const double mean = mean_of(contrasts), count = static_cast<double>(contrasts.size());
  return std::sqrt(std::max(0.0, square_of(contrasts) - count * mean * mean) / (count - 1));
}

double allowed_for(const CoherenceTolerance& tolerance, std::int64_t members, double scatter) {
  const double error =
      std::sqrt(tolerance.inflation / static_cast<double>(members)) * std::max(tolerance.spread, scatter);
  return std::max(tolerance.floor, factor_of(Statistic::kScale, tolerance.responses, 1) * error);
}

// Tensors that have a scale to be tested: those of routed tokens hold other rows in each run.
std::vector<TensorScale> scales_of(const RunDifferences& run, const ToleranceFile& file) {
  std::vector<TensorScale> scales;
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const LogicalTensor& tensor = *run.pairs[i].reference;
    const auto known = file.tensors.find({tensor.id.kind, tensor.id.name});
    if (tensor.rows || known == file.tensors.end() || !known->second.statistics.contains(Statistic::kScale)) continue;
    const double scale = run.differences[i].reference_square == 0 ? 0 : run.differences[i].scale_err();
    scales.push_back({tensor.id, std::isfinite(scale) ? scale : 1});
  }
  return scales;
}

// The floors of the tensors of a group: the largest of their scales', and of what their own sums are off by.
struct GroupFloors {
  double scale = 0, own = 0;
};

std::map<ToleranceKey, GroupFloors> floors_of_groups(const ToleranceFile& file, const OwnRoundings& own_sums) {
  std::map<ToleranceKey, GroupFloors> groups;
  for (const auto& [key, tolerance] : file.tensors) {
    const auto scale = tolerance.statistics.find(Statistic::kScale);
    if (scale == tolerance.statistics.end()) continue;
    GroupFloors& floors = groups[{key.first, without_numbers(key.second)}];
    // The floor of a scale is made of the own sums as well, where there are any.
    if (const auto own = own_sums.find(key); own != own_sums.end()) {
      floors.own = std::max(floors.own, own->second.scale);
    } else {
      floors.scale = std::max(floors.scale, scale->second.floor);
    }
  }
  return groups;
}

// Sets what all groups of a kind have in common: inflation and degrees of freedom.
void pool_kinds(std::size_t runs, CoherenceTolerances& tolerances) {
  struct Pool {
    double sum = 0;
    std::int64_t count = 0;
    std::set<std::vector<double>> different;
  };
  std::map<Kind, Pool> kinds;
  for (const auto& [key, tolerance] : tolerances) {
    Pool& pool = kinds[key.first];
    if (!pool.different.insert(tolerance.samples).second || tolerance.spread == 0) continue;
    for (const double mean : tolerance.samples) {
      pool.sum += static_cast<double>(tolerance.members) * std::pow(mean / tolerance.spread, 2);
      ++pool.count;
    }
  }
  for (auto& [key, tolerance] : tolerances) {
    const Pool& pool = kinds.at(key.first);
    if (pool.count > 0) tolerance.inflation = std::max(1.0, pool.sum / static_cast<double>(pool.count));
    const auto groups = static_cast<std::int64_t>(pool.different.size());
    tolerance.responses =
        static_cast<std::int64_t>(runs) * std::max<std::int64_t>(1, std::min(groups - 1, tolerance.members));
  }
}

}  // namespace

double mean_of(std::span<const Contrast> contrasts) {
  const double sum = std::accumulate(contrasts.begin(), contrasts.end(), 0.0,
                                     [](double part, const Contrast& one) { return part + one.value; });
  return contrasts.empty() ? 0 : sum / static_cast<double>(contrasts.size());
}

Contrasts contrasts_of(std::span<const TensorScale> tensors) {
  Contrasts contrasts;
  for (const auto& [layer, groups] : layers_of(tensors)) {
    std::vector<double> means;  // of each group
    for (const auto& [name, members] : groups) {
      double sum = 0;
      for (const std::size_t i : members) sum += tensors[i].scale;
      means.push_back(sum / static_cast<double>(members.size()));
    }
    std::size_t group = 0;
    for (const auto& [name, members] : groups) {
      const double median = median_without(means, group++);
      for (const std::size_t i : members) {
        contrasts[{std::get<Kind>(layer), name}].push_back({i, tensors[i].scale - median});
      }
    }
  }
  return contrasts;
}

double allowed_for(const CoherenceTolerance& tolerance, std::span<const Contrast> contrasts) {
  return allowed_for(tolerance, static_cast<std::int64_t>(contrasts.size()), scatter_of(contrasts));
}

double allowed_for(const CoherenceTolerance& tolerance) { return allowed_for(tolerance, tolerance.members, 0); }

void estimate_coherence(std::span<const RunDifferences> perturbed, const RunDifferences* rerun,
                        const EstimateOptions& options, const OwnRoundings& own_sums, ToleranceFile& file) {
  std::map<ToleranceKey, double> squares;
  for (const RunDifferences& run : perturbed) {
    for (const auto& [key, contrasts] : contrasts_of(scales_of(run, file))) {
      CoherenceTolerance& tolerance = file.coherence[key];
      tolerance.samples.push_back(mean_of(contrasts));
      tolerance.members = static_cast<std::int64_t>(contrasts.size());
      squares[key] += square_of(contrasts) / static_cast<double>(contrasts.size() * perturbed.size());
    }
  }
  Contrasts noise;
  if (rerun != nullptr) noise = contrasts_of(scales_of(*rerun, file));
  const std::map<ToleranceKey, GroupFloors> floors = floors_of_groups(file, own_sums);
  for (auto& [key, tolerance] : file.coherence) {
    const std::vector<Contrast>& own = noise[key];
    const double own_square = own.empty() ? 0 : square_of(own) / static_cast<double>(own.size());
    const GroupFloors& floor = floors.at(key);
    tolerance.spread = std::max(std::sqrt(std::max(squares.at(key), own_square)), floor.scale);
    tolerance.floor = options.margin * floor.own;
  }
  pool_kinds(perturbed.size(), file.coherence);
  for (auto& [key, tolerance] : file.coherence) tolerance.allowed = allowed_for(tolerance);
}

void require_coherence(const ToleranceFile& file, const Alignment& reference) {
  std::vector<TensorScale> tensors;
  for (const auto& [id, tensor] : reference.tensors) {
    const auto known = file.tensors.find({id.kind, id.name});
    if (tensor.rows || known == file.tensors.end() || !known->second.statistics.contains(Statistic::kScale)) continue;
    tensors.push_back({id, 0});
  }
  for (const auto& [key, contrasts] : contrasts_of(tensors)) {
    if (file.coherence.contains(key)) continue;
    throw InputError(
        fmt::format("{}: does not say what the coherence of {} {} may be, {} tensors; expected what `ttrace "
                    "estimate-tolerance` writes: run it again",
                    file.path, key.second, name_of(key.first), contrasts.size()));
  }
}

}  // namespace ttrace
