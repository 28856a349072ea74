#include "identify/ties.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "numeric/xxh3.h"

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

// What a rank recorded of a parameter: iteration, kind, shape, and checksum.
using ParameterValues = std::set<std::tuple<std::int32_t, Kind, Shape, std::uint64_t>>;

std::uint64_t checksum_of(const Entry& entry) { return entry.sketch ? entry.sketch->checksum : entry.checksum; }

bool is_zero(const Entry& entry) {
  const std::vector<std::byte> zeros(entry.bytes);
  return XXH3_64bits(zeros.data(), zeros.size()) == checksum_of(entry);
}

// The names of the rank's parameters, in order, by what it recorded of them.
std::map<ParameterValues, std::vector<std::string>> names_by_values(const RankTrace& rank) {
  std::vector<std::string> names;
  std::map<std::string, ParameterValues> recorded;
  for (const Entry& entry : rank.entries) {
    const Kind kind = entry.id.kind;
    if (kind != Kind::kParam && kind != Kind::kMainGrad && kind != Kind::kParamAfter) continue;
    const auto [found, is_new] = recorded.try_emplace(entry.id.name);
    if (is_new) names.push_back(entry.id.name);
    found->second.emplace(entry.id.iteration, kind, entry.shape.get(), checksum_of(entry));
  }
  std::map<ParameterValues, std::vector<std::string>> names_of;
  for (const std::string& name : names) names_of[recorded[name]].push_back(name);
  return names_of;
}

// True where the rank recorded a gradient of the parameter that is not zero: what has none may be alike by chance.
bool has_gradient(const RankTrace& rank, const std::string& name) {
  return std::any_of(rank.entries.begin(), rank.entries.end(), [&](const Entry& entry) {
    return entry.id.kind == Kind::kMainGrad && entry.id.name == name && !is_zero(entry);
  });
}

// The checksum with which the rank's parameter begins; nothing where it has none of the name.
std::optional<std::uint64_t> bytes_at_begin(const RankTrace& rank, const std::string& name) {
  for (const Entry& entry : rank.entries) {
    if (entry.id.kind == Kind::kParam && entry.id.name == name) return checksum_of(entry);
  }
  return std::nullopt;
}

// True where each rank has the parameter under one of the names at most, and the copies begin with the same bytes.
bool are_copies_apart(const std::string& name, const std::string& of, const Trace& candidate) {
  std::set<std::uint64_t> copies, originals;
  for (const RankTrace& rank : candidate.ranks) {
    const auto copy = bytes_at_begin(rank, name), original = bytes_at_begin(rank, of);
    if (copy && original) return false;
    if (copy) copies.insert(*copy);
    if (original) originals.insert(*original);
  }
  return !copies.empty() && std::includes(originals.begin(), originals.end(), copies.begin(), copies.end());
}

bool ends_another(const std::string& name, const Trace& trace) {
  return std::any_of(trace.ranks.begin(), trace.ranks.end(), [&](const RankTrace& rank) {
    return std::any_of(rank.entries.begin(), rank.entries.end(), [&](const Entry& entry) {
      return entry.id.kind == Kind::kParam && entry.id.name.get() != name && matches(name, entry.id.name);
    });
  });
}

}  // namespace

std::vector<TiedRule> ties_that_hold(std::vector<TiedRule> declared, const Census& census, const ModelLayout& layout) {
  std::erase_if(declared, [&](const TiedRule& rule) {
    return layout.shapes.empty() ? differ_in(rule, census) : has_name(rule.name, layout);
  });
  return declared;
}

std::vector<TiedRule> ties_of_bytes(const Trace& reference, const Trace& candidate) {
  std::vector<TiedRule> ties;
  if (reference.ranks.size() != 1 || candidate.ranks.size() < 2) return ties;
  const RankTrace& whole = reference.ranks.front();
  for (const auto& [recorded, names] : names_by_values(whole)) {
    if (names.size() < 2 || !has_gradient(whole, names.front())) continue;
    for (std::size_t i = 1; i < names.size(); ++i) {
      const auto is_of_another = [&](const std::string& name) {
        return ends_another(name, reference) || ends_another(name, candidate);
      };
      if (!are_copies_apart(names[i], names.front(), candidate)) continue;
      if (is_of_another(names[i]) || is_of_another(names.front())) continue;
      ties.push_back({.name = names[i], .of = names.front(), .source = {}});
    }
  }
  return ties;
}

}  // namespace ttrace
