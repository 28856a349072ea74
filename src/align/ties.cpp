#include "align/ties.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace ttrace {
namespace {

using Values = std::set<std::tuple<std::int32_t, Kind, std::uint64_t>>;  // iteration, kind, checksum

Values values_of(const std::string& name, const RankTable& ranks) {
  Values values;
  for (const PresentRank& rank : ranks.ranks) {
    for (const Entry& entry : rank.trace->entries) {
      const bool is_value = entry.id.kind == Kind::kParam || entry.id.kind == Kind::kParamAfter;
      if (is_value && matches(name, entry.id.name)) values.emplace(entry.id.iteration, entry.id.kind, entry.checksum);
    }
  }
  return values;
}

bool differ_in(const TiedRule& rule, const RankTable& ranks) {
  const Values values = values_of(rule.name, ranks), of = values_of(rule.of, ranks);
  return !values.empty() && !of.empty() && values != of;
}

// A reference in which the tie holds has the parameter under the other name alone.
bool has_name(const std::string& name, const ModelLayout& layout) {
  return std::any_of(layout.shapes.begin(), layout.shapes.end(), [&](const auto& known) {
    return known.first.second == Kind::kParam && matches(name, known.first.first);
  });
}

}  // namespace

Annotations with_ties_that_hold(Annotations annotations, const RankTable& ranks, const ModelLayout& layout) {
  std::erase_if(annotations.tied, [&](const TiedRule& rule) {
    return layout.shapes.empty() ? differ_in(rule, ranks) : has_name(rule.name, layout);
  });
  return annotations;
}

}  // namespace ttrace
