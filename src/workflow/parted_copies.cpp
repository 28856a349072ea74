#include "workflow/parted_copies.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace ttrace {
namespace {

// Of fewer elements, a step by a gradient's sign alone may have made parts of one parameter equal.
constexpr std::int64_t kLeastElements = 16;
constexpr int kShownBy = 2;

struct HeldValue {
  std::optional<std::uint64_t> before, after;  // checksums

  bool is_stepped() const { return before && after && before != after; }
};

using Name = std::pair<std::int32_t, std::string>;
using HeldValues = std::map<std::int32_t, HeldValue>;  // by rank

std::map<Name, HeldValues> parameters_of(const Trace& trace) {
  std::map<Name, HeldValues> parameters;
  for (const RankTrace& rank : trace.ranks) {
    for (const Entry& entry : rank.entries) {
      const bool is_after = entry.id.kind == Kind::kParamAfter;
      if (!is_after && entry.id.kind != Kind::kParam) continue;
      if (element_count(entry.shape.get()) < kLeastElements) continue;
      HeldValue& value = parameters[{entry.id.chunk, entry.id.name.get()}][rank.rank];
      (is_after ? value.after : value.before) = entry.checksum;
    }
  }
  return parameters;
}

std::vector<std::set<std::int32_t>> equal_ranks(const HeldValues& values) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::set<std::int32_t>> by_bits;
  for (const auto& [rank, value] : values) {
    if (value.is_stepped()) by_bits[{*value.before, *value.after}].insert(rank);
  }
  std::vector<std::set<std::int32_t>> groups;
  for (auto& [bits, ranks] : by_bits) {
    if (ranks.size() > 1) groups.push_back(std::move(ranks));
  }
  return groups;
}

// Returns the ranks that are in one group of both.
std::vector<std::set<std::int32_t>> common(const std::vector<std::set<std::int32_t>>& one,
                                           const std::vector<std::set<std::int32_t>>& other) {
  std::vector<std::set<std::int32_t>> groups;
  for (const std::set<std::int32_t>& left : one) {
    for (const std::set<std::int32_t>& right : other) {
      std::set<std::int32_t> both;
      std::ranges::set_intersection(left, right, std::inserter(both, both.end()));
      if (both.size() > 1) groups.push_back(std::move(both));
    }
  }
  return groups;
}

// Returns the group in two, where it no more holds equal bits: the ranks of the most frequent ones are the others.
std::optional<PartedCopies> parted(const std::string& name, Kind kind, const std::set<std::int32_t>& group,
                                   const HeldValues& values) {
  std::map<std::uint64_t, std::vector<std::int32_t>> by_bits;
  for (const std::int32_t rank : group) {
    const auto found = values.find(rank);
    if (found == values.end()) continue;
    const std::optional<std::uint64_t>& bits = kind == Kind::kParam ? found->second.before : found->second.after;
    if (bits) by_bits[*bits].push_back(rank);
  }
  if (by_bits.size() < 2) return std::nullopt;
  // Of as many ranks on both sides, those of the first rank are the others.
  const auto most = std::ranges::max_element(by_bits, [](const auto& left, const auto& right) {
    return std::pair(left.second.size(), -left.second.front()) < std::pair(right.second.size(), -right.second.front());
  });
  PartedCopies found{name, kind, {}, most->second};
  for (const auto& [bits, ranks] : by_bits) {
    if (bits != most->first) found.parted.insert(found.parted.end(), ranks.begin(), ranks.end());
  }
  std::ranges::sort(found.parted);
  return found;
}

}  // namespace

std::vector<PartedCopies> CopyWatch::look_at(const Trace& trace) {
  std::vector<PartedCopies> found;
  for (const auto& [name, values] : parameters_of(trace)) {
    Copies& known = copies_[name];
    const std::size_t before = found.size();
    if (known.shown >= kShownBy) {
      for (const Ranks& group : known.groups) {
        std::optional<PartedCopies> at = parted(name.second, Kind::kParam, group, values);
        if (!at) at = parted(name.second, Kind::kParamAfter, group, values);
        if (at) found.push_back(*std::move(at));
      }
    }
    std::vector<Ranks> equal = equal_ranks(values);
    if (found.size() > before || equal.empty()) continue;  // nothing new is known of them
    known.groups = known.shown == 0 ? std::move(equal) : common(known.groups, equal);
    ++known.shown;
  }
  return found;
}

}  // namespace ttrace
