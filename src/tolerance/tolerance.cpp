#include "tolerance/tolerance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/annotation.h"
#include "base/error.h"
#include "base/tensor_name.h"
#include "compare/tile.h"
#include "merge/rewritten.h"
#include "tolerance/default_tolerance.h"
#include "tolerance/floors.h"
#include "tolerance/reach.h"
#include "tolerance/remainder.h"

namespace ttrace {
namespace {

bool applies(const ToleranceOverride& override_, Kind kind, const std::string& name) {
  return (!override_.kind || *override_.kind == kind) && matches(override_.pattern, name);
}

// Where a sum over tokens was rounded token by token, that is the reference's own rounding.
bool is_sum_over_tokens(const ToleranceKey& key) {
  return key.first == Kind::kParamGrad || key.first == Kind::kMainGrad;
}

// A floor is a rounding of a sum times the largest element's share of the norm, and that is at most 1.
void require_plausible_statistics(const ToleranceFile& file, const ToleranceKey& key, const Tolerance& tolerance,
                                  const StoredTensor& stored, double summing, double unreached) {
  const double step = std::max(file.epsilon, epsilon_of(stored.dtype));
  const double by_sums = is_sum_over_tokens(key) ? step * summing : std::max(step, summing_epsilon(step) * summing);
  const double epsilon = std::max(by_sums, unreached);
  for (const auto& [statistic, said] : tolerance.statistics) {
    const double times = statistic == Statistic::kScale ? 1 : std::sqrt(static_cast<double>(stored.elements));
    if (said.floor <= epsilon * times) continue;
    throw InputError(
        fmt::format("{}: the floor of {} of {} {} is {}; expected at most {}, what rounds its largest element: "
                    "run `ttrace estimate-tolerance` again, or write an override",
                    file.path, name_of(statistic), key.second, name_of(key.first), said.floor, epsilon * times));
  }
}

// The largest sample of each kind and group.
std::map<ToleranceKey, double> largest_samples(const ToleranceFile& file) {
  std::map<ToleranceKey, double> largest;
  for (const auto& [key, tolerance] : file.tensors) {
    double& most = largest[{key.first, without_numbers(key.second)}];
    for (const double sample : tolerance.samples) most = std::max(most, sample);
  }
  return largest;
}

}  // namespace

bool is_gradient_norm(const ToleranceKey& key) {
  return key.first == Kind::kScalar && key.second.starts_with("grad_norm");
}

Allowance allowance_for(const ToleranceFile& file, const TensorId& id) {
  Allowance result;
  if (const auto found = file.tensors.find({id.kind, id.name}); found != file.tensors.end()) {
    result.estimated = found->second.allowed;
    result.tolerance = &found->second;
  }
  result.allowed = result.estimated;
  for (std::size_t i = file.overrides.size(); i-- > 0;) {
    if (!applies(file.overrides[i], id.kind, id.name)) continue;
    result.allowed = file.overrides[i].allowed;
    result.by_override = i;
    result.tolerance = nullptr;
    break;
  }
  return result;
}

std::optional<double> allowed_without_choice(const Tolerance& tolerance, double margin) {
  constexpr double kLeastMove = 0.01, kSpan = 1000;
  std::vector<double> samples = tolerance.samples;
  std::ranges::sort(samples);
  for (std::size_t i = 1; i < samples.size(); ++i) {
    const double near = std::max({samples[i - 1], tolerance.rerun.value_or(0), tolerance.floor});
    if (samples[i] >= kLeastMove && samples[i] > kSpan * near) return margin * near;
  }
  return std::nullopt;
}

std::optional<double> allowed_for(const ToleranceFile& file, const TensorId& id) {
  return allowance_for(file, id).allowed;
}

void require_fits(const ToleranceFile& file, const Trace& reference, const std::string& digest,
                  const Trace& candidate) {
  if (file.estimator == Estimator::kRewritten && !has_rewritten_modules(candidate)) {
    throw InputError(
        fmt::format("{}: says how far a module by itself may differ, and {} let its modules compute from each other's "
                    "values; expected a candidate collected with --inject, or tolerances of another estimator",
                    file.path, candidate.directory.string()));
  }
  const char* const again = "run `ttrace estimate-tolerance` again with this reference";
  if (file.reference_run == candidate.run_id && file.reference_run != reference.run_id) {
    throw InputError(
        fmt::format("{}: estimated from the run of the candidate {}, not from that of the reference {}; expected the "
                    "other way round: are --reference and --candidate swapped?",
                    file.path, candidate.directory.string(), reference.directory.string()));
  }
  if (file.reference_run != reference.run_id) {
    throw InputError(
        fmt::format("{}: estimated from the reference run {}, but {} holds run {}; expected the same run: {}",
                    file.path, file.reference_run, reference.directory.string(), reference.run_id, again));
  }
  if (file.compute_dtype != reference.compute_dtype) {
    throw InputError(fmt::format("{}: estimated in {}, but {} computes in '{}'; expected the same dtype: {}", file.path,
                                 file.compute_dtype, reference.directory.string(), reference.compute_dtype, again));
  }
  if (file.reference_digest != digest) {
    throw InputError(
        fmt::format("{}: estimated from data with digest {}, but {} now holds data with digest {}; expected what the "
                    "reference held then: {}",
                    file.path, file.reference_digest, reference.directory.string(), digest, again));
  }
}

StoredTensor stored_tensor(const LogicalTensor& tensor) {
  const Shape& shape = whole_shape_of(tensor);
  const Rows rows = rows_of(shape, tensor.dtype);
  const std::int64_t width = shape.empty() ? 1 : std::max<std::int64_t>(shape.back(), 1);
  const std::int64_t elements = element_count(shape);
  return StoredTensor{tensor.dtype, elements, rows.width == 0 ? 0 : elements / rows.width,
                      std::max(width, elements / width), tensor.rows.has_value()};
}

void add_stored(const TensorId& id, const StoredTensor& tensor, StoredTensors& stored) {
  StoredTensor& known = stored.emplace(ToleranceKey{id.kind, id.name}, tensor).first->second;
  if (epsilon_of(tensor.dtype) > epsilon_of(known.dtype)) known.dtype = tensor.dtype;
  known.elements = std::min(known.elements, tensor.elements);
  known.rows = std::min(known.rows, tensor.rows);
  known.terms = std::max(known.terms, tensor.terms);
  known.routed |= tensor.routed;
}

StoredTensors stored_tensors(const Alignment& reference) {
  StoredTensors stored;
  for (const auto& [id, tensor] : reference.tensors) {
    if (is_floating(tensor.dtype)) add_stored(id, stored_tensor(tensor), stored);
  }
  return stored;
}

void require_statistics(const ToleranceFile& file, const StoredTensors& tensors) {
  for (const auto& [key, tolerance] : file.tensors) {
    const auto stored = tensors.find(key);
    if (stored == tensors.end()) continue;
    for (const Statistic statistic : {Statistic::kScale, Statistic::kRow, Statistic::kElement}) {
      const bool is_needed = !stored->second.routed && is_tested(statistic, stored->second);
      const bool has_cell = statistic != Statistic::kScale && tolerance.statistics.contains(Statistic::kCell);
      if (!is_needed || has_cell || tolerance.statistics.contains(statistic)) continue;
      throw InputError(
          fmt::format("{}: does not say what {} of {} {} may be, a tensor of {} elements; expected what `ttrace "
                      "estimate-tolerance` writes: to allow something else, add an override with a reason",
                      file.path, name_of(statistic), key.second, name_of(key.first), stored->second.elements));
    }
  }
}

void require_plausible_floors(const ToleranceFile& file, const StoredTensors& tensors) {
  const std::map<ToleranceKey, double> largest = largest_samples(file);
  std::int64_t terms = 1, elements = 1;
  GradientSizes gradients;
  for (const auto& [key, tensor] : tensors) {
    terms = std::max(terms, tensor.terms);
    elements = std::max(elements, tensor.elements);
    if (key.first == Kind::kMainGrad) gradients.add(tensor.elements);
  }
  const double summing = std::sqrt(static_cast<double>(terms)), depth = greatest_depth(tensors);
  const Dtype compute = dtype_from_name(file.compute_dtype).value_or(Dtype::kFloat32);
  for (const auto& [key, tolerance] : file.tensors) {
    const auto stored = tensors.find(key);
    const bool is_step = key.first == Kind::kParamDelta || key.first == Kind::kParamAfter;  // their jumps are measured
    if (stored == tensors.end() || is_step || !is_floating(stored->second.dtype)) continue;
    const double step = std::max(file.epsilon, epsilon_of(stored->second.dtype));
    const double luck = largest_luck(largest.at({key.first, without_numbers(key.second)}),
                                     stored->second.routed ? 1 : stored->second.elements, file.margin);
    const double norm = is_gradient_norm(key) ? gradients.rounding_of_norm(stored->second.dtype) : 0;
    const double by_order = summing_epsilon(step) * std::sqrt(static_cast<double>(elements));
    const Dtype rounded_to = coarser(stored->second.dtype, compute);
    const double unreached = may_be_unreached(key.first) ? allowed_at(depth, rounded_to, terms) / file.margin : 0;
    const bool is_few = stored->second.elements <= kFewElements;
    const bool is_number = stored->second.elements == 1 && may_cross_zero(key.first, key.second);
    const double remainder = (is_few && may_be_remainder(key.first)) || is_number ? kMostOfRemainder : 0;
    const double most =
        std::max({is_sum_over_tokens(key) ? std::max(step * summing, by_order) : step,
                  rounding_of_sums(stored->second.dtype, file.margin, terms), luck, norm, remainder, unreached});
    require_plausible_statistics(file, key, tolerance, stored->second, summing, unreached);
    // The file's own arithmetic is repeated here, in another order.
    if (tolerance.floor <= most * (1 + 1e-9)) continue;
    // Of what the runs themselves show to be rounding alone, nothing is trusted, however large its floor is.
    const bool is_noise =
        std::ranges::any_of(tolerance.samples, [&](double sample) { return file.margin * sample >= 1; });
    // So it is of the few elements of a gradient whose terms cancel, which no run need move: of a bias that a loss of
    // differences does not depend on.
    const bool is_gradient = key.first == Kind::kParamGrad || key.first == Kind::kMainGrad;
    const bool is_cancelled = is_few && is_gradient && file.margin * tolerance.floor >= 1;
    if (is_noise || is_cancelled) continue;
    throw InputError(
        fmt::format("{}: the floor of {} {} is {}; expected at most {}, a rounding step or what the samples "
                    "leave to luck: run `ttrace estimate-tolerance` again, or write an override",
                    file.path, key.second, name_of(key.first), tolerance.floor, most));
  }
}

void bound_roundings_of_zero(std::span<const TensorPair> pairs, std::span<const Difference> differences,
                             ToleranceFile& file) {
  std::map<ToleranceKey, double> largest;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const TensorId& id = pairs[i].reference->id;
    double& norm = largest[{id.kind, id.name}];
    norm = std::max(norm, std::sqrt(differences[i].reference_square));
  }
  for (auto& [key, tolerance] : file.tensors) {
    if (!tolerance.of_zero) continue;
    const auto norm = largest.find(key);
    tolerance.of_zero = norm == largest.end() ? 0 : std::min(*tolerance.of_zero, norm->second);
  }
}

void require_modest_overrides(const ToleranceFile& file) {
  for (const ToleranceOverride& item : file.overrides) {
    const char* const objection = is_all_wildcards(item.pattern) ? "matches every tensor"
                                  : item.allowed >= 1            ? "allows any value"
                                                                 : nullptr;
    if (objection == nullptr) continue;
    fail_at(file.path, item.line,
            fmt::format("the override '{}' (allowed {}) {}; expected a pattern with a name in it and less than 1, or "
                        "--accept-overrides",
                        item.pattern, item.allowed, objection));
  }
}

std::vector<std::string> unused_overrides(const ToleranceFile& file, const std::set<ToleranceKey>& tensors) {
  std::vector<std::string> notes;
  for (const ToleranceOverride& item : file.overrides) {
    const bool used = std::any_of(tensors.begin(), tensors.end(),
                                  [&](const ToleranceKey& key) { return applies(item, key.first, key.second); });
    if (used) continue;
    notes.push_back(fmt::format("{}:{}: the override '{}'{} matches no tensor", file.path, item.line, item.pattern,
                                item.kind ? fmt::format(" of kind {}", name_of(*item.kind)) : ""));
  }
  return notes;
}

}  // namespace ttrace
