#include "ttrace/tolerance/tolerance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ttrace/annotation.h"
#include "ttrace/error.h"
#include "ttrace/rewrite/rewritten.h"

namespace ttrace {
namespace {

bool applies(const ToleranceOverride& override_, Kind kind, const std::string& name) {
  return (!override_.kind || *override_.kind == kind) && matches(override_.pattern, name);
}

// A floor is a rounding step times the largest element's share of the norm, and that is at most 1.
void require_plausible_statistics(const ToleranceFile& file, const ToleranceKey& key, const Tolerance& tolerance,
                                  const StoredTensor& stored) {
  const double epsilon = std::max(file.epsilon, epsilon_of(stored.dtype));
  for (const auto& [statistic, said] : tolerance.statistics) {
    const double times = statistic == Statistic::kScale ? 1 : std::sqrt(static_cast<double>(stored.elements));
    if (said.floor <= epsilon * times) continue;
    throw InputError(
        fmt::format("{}: the floor of {} of {} {} is {}; expected at most {}, a rounding step of its largest element: "
                    "run `ttrace estimate-tolerance` again, or write an override",
                    file.path, name_of(statistic), key.second, name_of(key.first), said.floor, epsilon * times));
  }
}

}  // namespace

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

void require_plausible_floors(const ToleranceFile& file, const std::map<ToleranceKey, StoredTensor>& tensors) {
  for (const auto& [key, tolerance] : file.tensors) {
    const auto stored = tensors.find(key);
    const bool is_step = key.first == Kind::kParamDelta || key.first == Kind::kParamAfter;  // their jumps are measured
    if (stored == tensors.end() || is_step || !is_floating(stored->second.dtype)) continue;
    const double most = std::max({file.epsilon, epsilon_of(stored->second.dtype),
                                  largest_luck(tolerance.samples, stored->second.elements, file.margin)});
    require_plausible_statistics(file, key, tolerance, stored->second);
    if (tolerance.floor <= most) continue;
    throw InputError(
        fmt::format("{}: the floor of {} {} is {}; expected at most {}, a rounding step or what the samples "
                    "leave to luck: run `ttrace estimate-tolerance` again, or write an override",
                    file.path, key.second, name_of(key.first), tolerance.floor, most));
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
