#include "identify/local_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tensor_name.h"
#include "identify/resolved_annotations.h"

namespace ttrace {
namespace {

// What one expert's parameters hold, by kind and the name behind its number: shapes and checksums.
using ExpertValues = std::map<std::pair<Kind, std::string>, std::pair<Shape, std::uint64_t>>;
struct OneExpert {
  ExpertValues at_begin, after;
};
using NumberedExperts = std::map<std::int64_t, OneExpert>;  // by number
using ExpertsByPrefix = std::map<std::string, NumberedExperts>;

void add_parameter(const TensorId& id, const Shape& shape, std::uint64_t checksum, ExpertsByPrefix& all) {
  const std::string_view name = id.name.get();
  for (auto number = number_in(name); number; number = number_in(name, number->end)) {
    OneExpert& expert = all[std::string(number->prefix)][number->value];
    ExpertValues& values = id.kind == Kind::kParam ? expert.at_begin : expert.after;
    values[{id.kind, std::string(name.substr(number->end))}] = {shape, checksum};
  }
}

bool is_parameter_value(const TensorId& id, std::int32_t iteration) {
  return id.iteration == iteration && (id.kind == Kind::kParam || id.kind == Kind::kParamAfter);
}

std::uint64_t checksum_of_recorded(const Entry& entry) {
  return entry.sketch ? entry.sketch->checksum : entry.checksum;
}

ExpertsByPrefix experts_on(const RankTrace& rank, std::int32_t iteration) {
  ExpertsByPrefix all;
  for (const Entry& entry : rank.entries) {
    if (is_parameter_value(entry.id, iteration)) {
      add_parameter(entry.id, entry.shape, checksum_of_recorded(entry), all);
    }
  }
  return all;
}

// Those of parameters that some rank recorded whole.
ExpertsByPrefix experts_in(const Alignment& reference, std::int32_t iteration) {
  ExpertsByPrefix all;
  for (const auto& [id, tensor] : reference.tensors) {
    if (!is_parameter_value(id, iteration)) continue;
    const std::vector<Piece> pieces = tensor.pieces();
    if (pieces.empty() || pieces.front().entry->shape != tensor.shape) continue;
    add_parameter(id, tensor.shape, checksum_of_recorded(*pieces.front().entry), all);
  }
  return all;
}

bool are_counted_from_zero(const NumberedExperts& experts) {
  return experts.begin()->first == 0 && experts.rbegin()->first == std::ssize(experts) - 1;
}

// What follows the last number of the prefix: `moe.experts` of `layers.0.moe.experts`, and of `0.moe.experts`.
std::string_view behind_numbers(std::string_view prefix) {
  std::size_t begin = 0, behind = 0;
  for (const std::string& component : components_of(prefix)) {
    begin += component.size() + 1;
    if (component.find_first_not_of("0123456789") == std::string::npos) behind = std::min(begin, prefix.size());
  }
  return prefix.substr(behind);
}

// Finds the experts of a reference by the bytes they begin with.
class ExpertsByBytes {
 public:
  explicit ExpertsByBytes(const ExpertsByPrefix& reference) : reference_(reference) {
    for (const auto& [prefix, experts] : reference) {
      for (const auto& [number, expert] : experts) ++count_[expert.at_begin];
      for (const auto& [number, expert] : experts) place_[expert.at_begin] = {&prefix, number};
    }
  }

  // Returns which part of so many equal ones these are, of experts whose prefix ends alike; nothing where one begins
  // with other bytes than any of the reference's, or with those of several.
  std::optional<std::pair<std::int64_t, std::int64_t>> part_of(std::string_view prefix,
                                                               const NumberedExperts& own) const {
    const auto first = find(own.begin()->second);
    if (!first || behind_numbers(*first->first) != behind_numbers(prefix)) return std::nullopt;
    const std::int64_t count = std::ssize(own), of_model = std::ssize(reference_.at(*first->first));
    for (const auto& [number, expert] : own) {
      const auto found = find(expert);
      if (!found || *found->first != *first->first || found->second != first->second + number) return std::nullopt;
    }
    if (of_model % count != 0 || first->second % count != 0) return std::nullopt;
    return std::pair(first->second / count, of_model / count);
  }

 private:
  using Place = std::pair<const std::string*, std::int64_t>;  // prefix and number

  std::optional<Place> find(const OneExpert& expert) const {
    const auto count = count_.find(expert.at_begin);
    if (count == count_.end() || count->second != 1) return std::nullopt;
    return place_.at(expert.at_begin);
  }

  const ExpertsByPrefix& reference_;
  std::map<ExpertValues, std::int64_t> count_;
  std::map<ExpertValues, Place> place_;
};

// NumberedExperts of one rank, under one prefix.
struct Holding {
  const RankTrace* rank = nullptr;
  const std::string* prefix = nullptr;
  const NumberedExperts* experts = nullptr;
};

// The holdings of which the reference has more under the same name, by what their prefixes end with.
std::map<std::string_view, std::vector<Holding>> local_holdings(const Trace& candidate,
                                                                const std::vector<ExpertsByPrefix>& of_ranks,
                                                                const ExpertsByPrefix& reference) {
  std::map<std::string_view, std::vector<Holding>> holdings;
  std::set<std::string_view> whole;  // that some rank has as the reference has them
  for (std::size_t i = 0; i < of_ranks.size(); ++i) {
    for (const auto& [prefix, experts] : of_ranks[i]) {
      const auto known = reference.find(prefix);
      if (known == reference.end()) continue;
      const bool is_local = are_counted_from_zero(experts) && are_counted_from_zero(known->second) &&
                            experts.size() < known->second.size() && known->second.size() % experts.size() == 0;
      if (!is_local) whole.insert(behind_numbers(prefix));
      holdings[behind_numbers(prefix)].push_back({&candidate.ranks[i], &prefix, &experts});
    }
  }
  std::erase_if(holdings, [&](const auto& item) { return item.first.empty() || whole.contains(item.first); });
  return holdings;
}

std::int64_t expert_parts(const Holding& holding, const ExpertsByPrefix& reference) {
  return std::ssize(reference.at(*holding.prefix)) / std::ssize(*holding.experts);
}

// True where each holding is the part that its rank's coordinate says, by the bytes that the experts begin with.
bool are_told_by_bytes(const std::vector<Holding>& holdings, const Axis& axis, const ExpertsByBytes& by_bytes) {
  return std::all_of(holdings.begin(), holdings.end(), [&](const Holding& holding) {
    const auto part = by_bytes.part_of(*holding.prefix, *holding.experts);
    return part && *part == std::pair(holding.rank->coordinates.at(axis.name), axis.size);
  });
}

ExpertValues expert_shapes(const OneExpert& expert) {
  ExpertValues shapes = expert.at_begin;
  for (auto& [name, value] : shapes) value.second = 0;
  return shapes;
}

bool begin_alike(const NumberedExperts& experts) {
  return std::all_of(experts.begin(), experts.end(), [&](const auto& numbered) {
    return numbered.second.at_begin == experts.begin()->second.at_begin;
  });
}

// True where the experts have the shapes of the reference's under their names, and ranks hold the same ones exactly
// where they have one coordinate on the axis: the same at first, or where all of the reference's begin alike, after it.
bool may_lie_along(const std::vector<Holding>& holdings, const Axis& axis, const ExpertsByPrefix& reference) {
  std::map<std::string_view, std::map<std::int64_t, std::set<std::vector<ExpertValues>>>>
      found;  // by prefix, coordinate
  for (const Holding& holding : holdings) {
    if (expert_parts(holding, reference) != axis.size) return false;
    const bool are_alike = begin_alike(reference.at(*holding.prefix));
    std::vector<ExpertValues> values;
    for (const auto& [number, expert] : *holding.experts) {
      if (expert_shapes(expert) != expert_shapes(reference.at(*holding.prefix).at(number))) return false;
      values.push_back(are_alike ? expert.after : expert.at_begin);
    }
    found[*holding.prefix][holding.rank->coordinates.at(axis.name)].insert(std::move(values));
  }
  return std::all_of(found.begin(), found.end(), [&](const auto& of_prefix) {
    std::set<std::vector<ExpertValues>> different;
    for (const auto& [coordinate, values] : of_prefix.second) {
      if (values.size() != 1) return false;
      different.insert(*values.begin());
    }
    return std::ssize(different) == axis.size;
  });
}

// The axes over which experts may lie: of several ranks, and not the pipeline's.
Axes expert_axes(const Trace& candidate) {
  const int stages = resolve({}, candidate.mesh).stage_axis.index;
  Axes axes = all_axes(candidate.mesh);
  if (stages >= 0) axes.erase(axes.begin() + stages);
  std::erase_if(axes, [](const Axis& axis) { return axis.size == 1; });
  return axes;
}

}  // namespace

std::string LocalExperts::line() const { return fmt::format("experts: {{axis: {}, layers: {}}}", axis, layers); }

std::optional<LocalExperts> find_local_experts(const Alignment& reference, const Trace& candidate) {
  const Axes axes = expert_axes(candidate);
  if (axes.empty() || reference.tensors.empty()) return std::nullopt;
  const std::int32_t iteration = reference.tensors.begin()->first.iteration;
  const ExpertsByPrefix of_reference = experts_in(reference, iteration);
  std::vector<ExpertsByPrefix> of_ranks;
  for (const RankTrace& rank : candidate.ranks) of_ranks.push_back(experts_on(rank, iteration));
  const auto holdings = local_holdings(candidate, of_ranks, of_reference);
  if (holdings.size() != 1) return std::nullopt;  // one rule says one kind of experts
  const auto& [layers, held] = *holdings.begin();
  const Holding& first = held.front();
  LocalExperts local{"", std::string(layers), std::ssize(*first.experts), std::ssize(of_reference.at(*first.prefix)),
                     false};
  const ExpertsByBytes by_bytes(of_reference);
  for (const Axis& axis : axes) {
    local.axis = axis.name;
    local.told = are_told_by_bytes(held, axis, by_bytes);
    if (local.told || may_lie_along(held, axis, of_reference)) return local;
  }
  return std::nullopt;
}

}  // namespace ttrace
