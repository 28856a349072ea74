#include "annotate/activation_layouts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace ttrace {

const std::vector<std::string>& activation_layouts() {
  static const std::vector<std::string> kLayouts = {
      "same",
      "b s ... -> s b ...",
      "(b s) ... -> s b ...",
      "(b s) ... -> b s ...",
      "b s ... -> (b s) ...",
      "s b ... -> (b s) ...",
      "b s (h d) -> s b h d",
      "b s h d -> s b (h d)",
      "b h s d -> s b (h d)",
      "b h s d -> s b h d",
      "b s (h d) -> b s h d",
      "b s h d -> b s (h d)",
      "b h s d -> b s (h d)",
      "b h s d -> b s h d",
      "b s h d -> b h s d",
      "s b (h d) -> b s h d",
      "s b (h d) -> b h s d",
      "s b h d -> b h s d",
  };
  return kLayouts;
}

std::vector<std::string> layouts_ending_in(const std::vector<std::string>& reference,
                                           const std::vector<std::string>& candidate) {
  static constexpr std::array<std::array<const char*, 2>, 7> kLeading = {{{"b s", "b s"},
                                                                          {"b s", "s b"},
                                                                          {"(b s)", "s b"},
                                                                          {"(b s)", "b s"},
                                                                          {"b s", "(b s)"},
                                                                          {"s b", "(b s)"},
                                                                          {"b", "b"}}};
  const auto side = [](const std::vector<std::string>& last, const std::string& before) {
    std::vector<std::string> tensors;
    for (const std::string& dimension : last) tensors.push_back(fmt::format("{} {}", before, dimension));
    return fmt::format("{}", fmt::join(tensors, ", "));
  };
  std::vector<std::string> layouts;
  for (const auto& before : kLeading) {
    layouts.push_back(fmt::format("{} -> {}", side(reference, before[0]), side(candidate, before[1])));
  }
  return layouts;
}

BestLayout best_of(const std::vector<std::string>& patterns, const AxisSizes& sizes, const PatternSides& sides) {
  BestLayout best;
  for (const std::string& pattern : patterns) {
    const auto distance = distance_by(pattern, sizes, sides);
    if (!distance) continue;
    if (best.fits && *distance == best.distance) continue;  // the same mapping of these shapes
    if (best.fits && *distance > best.distance) {
      best.otherwise = std::min(best.otherwise.value_or(*distance), *distance);
      continue;
    }
    if (best.fits) best.otherwise = best.distance;
    best = {pattern, *distance, best.otherwise, true};
  }
  return best;
}

double likeness_of(const LogicalTensor& tensor) {
  Values values = values_of(tensor);
  const double norm = norm_of(values);
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  for (double& value : values) value -= mean;
  return norm / norm_of(values);
}

}  // namespace ttrace
