#include "annotate/scalar_counterparts.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "merge/values.h"

namespace ttrace {
namespace {

// Scalars of one name in two programs that compute the same are nearer than this; those of other names must be nearer
// yet.
constexpr double kNearScalar = 1e-3;
constexpr double kSameScalar = 1e-5;

using Scalars = std::map<std::string, double>;

// Returns the scalars of the first iteration, by name.
Scalars scalars_of(const Alignment& alignment) {
  Scalars scalars;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (id.kind == Kind::kScalar && element_count(tensor.shape) == 1) {
      scalars.emplace(id.name, values_of(tensor).front());
    }
  }
  return scalars;
}

double apart(double a, double b) { return a == b ? 0 : std::abs(a - b) / std::max(std::abs(a), std::abs(b)); }

}  // namespace

ScalarMatches match_scalars(const Alignment& reference, const Alignment& candidate) {
  const Scalars of_reference = scalars_of(reference), of_candidate = scalars_of(candidate);
  const auto goes_by_name = [&](const std::string& name) {
    return of_reference.contains(name) && of_candidate.contains(name) &&
           apart(of_reference.at(name), of_candidate.at(name)) < kNearScalar;
  };
  ScalarMatches matches;
  std::set<std::string> taken;
  for (const auto& [name, value] : of_reference) {
    if (goes_by_name(name) || value == 0) continue;
    std::vector<std::string> found;
    for (const auto& [other, other_value] : of_candidate) {
      if (!goes_by_name(other) && apart(value, other_value) < kSameScalar) found.push_back(other);
    }
    if (found.size() == 1 && taken.insert(found[0]).second) {
      Counterparts& rule = matches.renamed.emplace_back();
      rule.names[0] = {name};
      rule.names[1] = found;
      rule.near["scalar"] = {apart(value, of_candidate.at(found[0])), std::nullopt};
      taken.insert(name);
    }
  }
  for (const auto& [name, value] : of_reference) {
    const auto same = of_candidate.find(name);
    if (same == of_candidate.end() || taken.contains(name) || goes_by_name(name)) continue;
    matches.far[name] = apart(value, same->second);
  }
  return matches;
}

}  // namespace ttrace
