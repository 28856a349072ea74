#include "step/jumps.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "step/replay.h"
#include "step/series.h"

namespace ttrace {
namespace {

using PairOf = std::map<TensorId, std::size_t>;  // an index into `Matching::pairs`

std::set<TensorId> updates_in_question(const Compared& compared,
                                       const std::map<TensorId, std::vector<TensorId>>& proved) {
  std::set<TensorId> updates;
  for (std::size_t i = 0; i < compared.matching.pairs.size(); ++i) {
    const TensorId& id = compared.matching.pairs[i].candidate->id;
    if (id.kind != Kind::kParamDelta && id.kind != Kind::kParamAfter) continue;
    const TensorId update = id.with_kind(Kind::kParamDelta);
    if (!proved.contains(id) || !proved.contains(update)) continue;
    if (judge(compared.matching.pairs[i], compared.differences[i], compared.tolerance).reason ==
        Reason::kExceedsTolerance)
      updates.insert(update);
  }
  return updates;
}

// Returns what one element of the gradient may be off by, in units of the gradient. None where its tolerance does not
// say.
std::optional<double> allowed_of_element(const Difference& gradient, const TensorId& id,
                                         const ToleranceFile& tolerance) {
  const Allowance allowance = allowance_for(tolerance, id);
  if (allowance.tolerance == nullptr || gradient.elements == 0) return std::nullopt;
  const auto& statistics = allowance.tolerance->statistics;
  const auto element = statistics.find(Statistic::kElement);
  if (element == statistics.end()) return *allowance.allowed * std::sqrt(gradient.reference_square);
  return element->second.allowed * std::sqrt(gradient.reference_square / static_cast<double>(gradient.elements));
}

}  // namespace

std::map<TensorId, double> find_jumps(const AlignedTrace& reference, const Compared& compared,
                                      const std::map<TensorId, std::vector<TensorId>>& proved) {
  std::map<TensorId, double> jumps;
  const std::set<TensorId> wanted = updates_in_question(compared, proved);
  if (wanted.empty()) return jumps;
  PairOf pair_of;
  for (std::size_t i = 0; i < compared.matching.pairs.size(); ++i)
    pair_of.emplace(compared.matching.pairs[i].candidate->id, i);
  for (const ParameterSeries& series : find_series(*reference.trace, reference.alignment)) {
    for (std::size_t i = 0; i < series.updates.size(); ++i) {
      const RankUpdate& update = series.updates[i];
      TensorId id;
      id.iteration = update.iteration;
      id.kind = Kind::kParamDelta;
      id.name = series.name;
      if (!wanted.contains(id) || !update.reason.empty() || !update.gradient) continue;
      const auto gradient = pair_of.find(id.with_kind(update.gradient.entry->id.kind));
      if (gradient == pair_of.end()) continue;
      const auto error =
          allowed_of_element(compared.differences[gradient->second], gradient->first, *compared.tolerance);
      if (error) jumps[id] = std::max(jumps[id], largest_jump(series, i, *error));
    }
  }
  return jumps;
}

}  // namespace ttrace
