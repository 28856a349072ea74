#include "identify/ties.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace ttrace {
namespace {

using Values = std::set<std::tuple<std::int32_t, Kind, std::uint64_t>>;  // iteration, kind, checksum

Values values_of(const std::string& name, const Census& census) {
  Values values;
  const auto is_value = [&](const Entry& entry) {
    return (entry.id.kind == Kind::kParam || entry.id.kind == Kind::kParamAfter) && matches(name, entry.id.name);
  };
  for_each_entry(census, is_value, [&](const PresentRank&, const Entry& entry) {
    values.emplace(entry.id.iteration, entry.id.kind, entry.checksum);
  });
  return values;
}

bool differ_in(const TiedRule& rule, const Census& census) {
  const Values values = values_of(rule.name, census), of = values_of(rule.of, census);
  return !values.empty() && !of.empty() && values != of;
}

// A reference in which the tie holds has the parameter under the other name alone.
bool has_name(const std::string& name, const ModelLayout& layout) {
  return std::any_of(layout.shapes.begin(), layout.shapes.end(), [&](const auto& known) {
    return known.first.second == Kind::kParam && matches(name, known.first.first);
  });
}

}  // namespace

std::vector<TiedRule> ties_that_hold(std::vector<TiedRule> declared, const Census& census, const ModelLayout& layout) {
  std::erase_if(declared, [&](const TiedRule& rule) {
    return layout.shapes.empty() ? differ_in(rule, census) : has_name(rule.name, layout);
  });
  return declared;
}

}  // namespace ttrace
