#include "annotate/pattern_trial.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "merge/region.h"
#include "numeric/convert.h"

namespace ttrace {
namespace {

std::set<std::string> numbered_axes(const PlacedTensors& tensors) {
  std::set<std::string> axes;
  for (const auto& [place, tensor] : tensors) {
    for (const auto& [axis, value] : place.fixed) axes.insert(axis);
  }
  return axes;
}

bool has_rows(const PlacedTensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& item) { return item.second->rows.has_value(); });
}

// Makes as many tensors on a side as there are names, where the pattern speaks of one (pattern_of in groups.cpp).
void repeat_tensors(IndexPattern& pattern, std::size_t side, const PlacedTensors& tensors) {
  std::size_t names = 1;
  for (const auto& [place, tensor] : tensors) names = std::max(names, place.tensor + 1);
  if (pattern.sides[side].size() == 1) pattern.sides[side].resize(names, pattern.sides[side].front());
}

}  // namespace

Values rounded_values_of(const LogicalTensor& tensor, std::optional<Dtype> dtype) {
  Values values = values_of(tensor);
  if (!dtype || *dtype == tensor.dtype) return values;
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_of(*dtype)));
  narrow(values.data(), *dtype, count, bytes.data());
  widen(bytes.data(), *dtype, count, values.data());
  return values;
}

std::optional<double> distance_by(const std::string& pattern, const AxisSizes& sizes, const PatternSides& sides,
                                  std::optional<Dtype> dtype) {
  if (sides.reference.empty() || sides.candidate.empty()) return std::nullopt;
  if (has_rows(sides.reference) || has_rows(sides.candidate)) return std::nullopt;
  IndexPattern parsed;
  try {
    parsed = parse_index_pattern(pattern == "same" ? kSameIndices : std::string_view(pattern),
                                 numbered_axes(sides.reference), numbered_axes(sides.candidate));
  } catch (const PatternError&) {
    return std::nullopt;  // of axes that one side numbers, and the pattern does not have
  }
  repeat_tensors(parsed, 0, sides.reference);
  repeat_tensors(parsed, 1, sides.candidate);
  const FittedPattern fitted = fit(std::move(parsed), 1, sizes, sides.candidate, sides.reference);
  if (!fitted.fits || !unknown_axis(*fitted.how).empty()) return std::nullopt;
  double distance = 0;
  for (const auto& [place, target] : sides.reference) {
    const std::vector<Source> sources = sources_of(*fitted.how, place, sides.candidate);
    if (sources.empty()) return std::nullopt;
    const LogicalTensor made = made_of(target->id, fitted.how, sources, place);
    const Values expected = rounded_values_of(region_of(*target, whole_box(made.shape)), dtype);
    distance = std::max(distance, relative_distance(rounded_values_of(made, dtype), expected));
  }
  return std::isnan(distance) ? std::nullopt : std::optional(distance);
}

}  // namespace ttrace
