// The slope of all tensors together is one number a run, and the largest of three runs' says little of the next: of
// four equal draws from a normal distribution the fourth is more than three times the largest of the others in 3 of 100
// cases. So a run's sample is not below the standard error of its slope, which its tensors tell: the errors of the sums
// that the slope is made of, tensor by tensor, as independent draws (the cluster-robust estimate of Liang and Zeger,
// 1986). The same holds for the decay.
#include "step/slopes.h"

#include <cmath>

#include "step/options.h"

namespace ttrace {
namespace {

double capped(double value) { return std::isfinite(value) ? std::min(std::abs(value), 1.0) : 1.0; }

constexpr double kFewElements = 4;

// Returns what few elements round, relative to `whole`.
double rounding_of(double units, double whole) { return whole == 0 ? 0 : kFewElements * units / whole; }

}  // namespace

double slope_rounding(const UpdateSums& sums) { return rounding_of(sums.d_units, sums.dd); }

double decay_rounding(const UpdateSums& sums) { return rounding_of(sums.p_units, std::sqrt(sums.pp * sums.dd)); }

double norm_rounding(const UpdateSums& sums) { return rounding_of(sums.all_units, sums.reference_square); }

double still_rounding(const UpdateSums& sums) {
  return sums.moved_above == 0 ? 0 : kFewElements / static_cast<double>(sums.moved_above);
}

bool has_slope(const UpdateSums& sums) { return sums.above >= kLeastAbove && sums.dd > 0; }

double norm_error(const UpdateSums& sums) { return std::sqrt(sums.candidate_square / sums.reference_square) - 1; }

double share_still_above(const UpdateSums& sums) {
  return sums.moved_above == 0 ? 0 : static_cast<double>(sums.still_above) / static_cast<double>(sums.moved_above);
}

double share_still(const UpdateSums& sums) {
  return sums.moved == 0 ? 0 : static_cast<double>(sums.still) / static_cast<double>(sums.moved);
}

PooledSlope pool(std::span<const UpdateSums* const> updates) {
  PooledSlope result;
  UpdateSums total;
  for (const UpdateSums* sums : updates) {
    if (!has_slope(*sums)) continue;
    total.add(*sums);
    ++result.tensors;
  }
  result.total = total;
  if (result.tensors == 0) return result;
  const auto n = static_cast<double>(result.tensors);
  const double small_sample = n > 1 ? n / (n - 1) : 0;
  result.slope_error = total.slope_error();
  const double determinant = total.dd * total.pp - total.dp * total.dp;
  const bool has_decay = determinant > 1e-9 * total.dd * total.pp;
  if (has_decay) {
    result.beside_decay = (total.de * total.pp - total.pe * total.dp) / determinant;
    result.decay = (total.pe * total.dd - total.de * total.dp) / determinant;
  }
  double slope_square = 0, decay_square = 0;
  for (const UpdateSums* sums : updates) {
    if (!has_slope(*sums)) continue;
    const double alone = sums->de - result.slope_error * sums->dd;
    slope_square += alone * alone;
    const double of_d = sums->de - result.beside_decay * sums->dd - result.decay * sums->dp;
    const double of_p = sums->pe - result.beside_decay * sums->dp - result.decay * sums->pp;
    const double of_decay = has_decay ? (total.dd * of_p - total.dp * of_d) / determinant : 0;
    decay_square += of_decay * of_decay;
  }
  const double to_share = std::sqrt(total.pp / total.dd);
  result.slope_doubt = std::sqrt(small_sample * slope_square) / total.dd;
  result.decay_share = std::abs(result.decay) * to_share;
  result.decay_doubt = std::sqrt(small_sample * decay_square) * to_share;
  return result;
}

std::array<double, kUpdateMeasures.size()> sample_of(std::span<const UpdateSums* const> updates) {
  std::array<double, kUpdateMeasures.size()> sample{};
  const auto of = [&](UpdateMeasure measure) -> double& { return sample[static_cast<std::size_t>(measure)]; };
  const PooledSlope pooled = pool(updates);
  of(UpdateMeasure::kPool) = of(UpdateMeasure::kDecay) = 1;
  if (pooled.tensors > 0) {
    of(UpdateMeasure::kPool) = capped(std::max(std::abs(pooled.slope_error), pooled.slope_doubt));
    of(UpdateMeasure::kDecay) = capped(std::max(pooled.decay_share, pooled.decay_doubt));
  }
  bool has_small = false, has_moved = false;
  for (const UpdateSums* sums : updates) {
    const auto raise = [&](UpdateMeasure measure, double value) { of(measure) = std::max(of(measure), capped(value)); };
    if (sums->moved == 0) continue;
    has_moved = true;
    raise(UpdateMeasure::kStill, share_still(*sums));
    if (has_slope(*sums)) {
      raise(UpdateMeasure::kTensor, sums->slope_error());
      raise(UpdateMeasure::kStillAbove, share_still_above(*sums));
    } else {
      has_small = true;
      raise(UpdateMeasure::kNorm, norm_error(*sums));
    }
  }
  if (!has_small) of(UpdateMeasure::kNorm) = 1;
  if (!has_moved) of(UpdateMeasure::kStill) = 1;
  if (pooled.tensors == 0) of(UpdateMeasure::kTensor) = of(UpdateMeasure::kStillAbove) = 1;
  return sample;
}

OptimizerNames optimizer_names(const AlignedTrace& aligned) {
  OptimizerNames names;
  for (const auto& [key, steps] : stated_steps(aligned)) names[key] = steps.front().step->optimizer;
  return names;
}

UpdateTolerances measure_update_tolerances(const AlignedTrace& reference, std::span<const RunDifferences> runs,
                                           int threads) {
  const OptimizerNames names = optimizer_names(reference);
  UpdateTolerances tolerances;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    std::set<TensorId> wanted;
    for (const TensorPair& pair : runs[r].pairs) {
      if (pair.candidate->id.kind == Kind::kParamDelta) wanted.insert(pair.candidate->id);
    }
    const std::vector<RegressedUpdate> updates = regress_updates(runs[r].pairs, runs[r].differences, wanted, threads);
    std::map<std::pair<std::string, std::int32_t>, std::vector<const UpdateSums*>> groups;
    for (const RegressedUpdate& update : updates) {
      if (!update.reason.empty()) continue;
      const auto name = names.find({update.id.iteration, update.id.name});
      groups[{name == names.end() ? "" : name->second, update.id.iteration}].push_back(&update.sums);
    }
    for (const auto& [key, group] : groups) {
      const auto sample = sample_of(group);
      UpdateTolerance& tolerance = tolerances[key];
      for (std::size_t m = 0; m < sample.size(); ++m) {
        tolerance[m].resize(runs.size(), 1.0);  // of a run that had nothing to measure
        tolerance[m][r] = sample[m];
      }
    }
  }
  return tolerances;
}

}  // namespace ttrace
