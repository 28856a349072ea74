#include "identify/arrangement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/tensor_name.h"
#include "identify/box_bytes.h"
#include "identify/samples.h"
#include "identify/stacked_blocks.h"
#include "numeric/convert.h"

namespace ttrace {
namespace {

std::optional<std::int32_t> first_iteration(const Trace& trace) {
  std::optional<std::int32_t> first;
  for (const RankTrace& rank : trace.ranks) {
    for (const Entry& entry : rank.entries) first = std::min(first.value_or(entry.id.iteration), entry.id.iteration);
  }
  return first;
}

using Parameters = std::map<TensorId, const Entry*>;

// The parameters of the iteration that a rank holds.
Parameters parameters_of(const RankTrace& rank, std::int32_t iteration) {
  Parameters parameters;
  for (const Entry& entry : rank.entries) {
    if (entry.id.kind == Kind::kParam && entry.id.iteration == iteration) parameters.emplace(entry.id, &entry);
  }
  return parameters;
}

// What tells one value of a parameter from another.
using Value = std::tuple<std::uint64_t, std::uint64_t, Shape>;

Value value_of(const Entry& entry) { return {entry.checksum, entry.bytes, entry.shape}; }

// What a rank holds of a parameter.
struct Held {
  const RankTrace* rank = nullptr;
  const Entry* entry = nullptr;
};

// The dimension along which the parts make up the reference's tensor, or more where it was padded to be cut; nothing
// where there is none.
std::optional<std::size_t> cut_dimension(const Shape& whole, const std::vector<Held>& parts) {
  std::optional<std::size_t> cut;
  for (const Held& part : parts) {
    const Shape& shape = part.entry->shape;
    if (shape.size() != whole.size()) return std::nullopt;
    for (std::size_t d = 0; d < whole.size(); ++d) {
      if (shape[d] == whole[d]) continue;
      if (shape[d] > whole[d] || cut.value_or(d) != d) return std::nullopt;
      cut = d;
    }
  }
  std::int64_t sum = 0;
  for (const Held& part : parts) sum += cut ? part.entry->shape.get()[*cut] : 0;
  return cut && sum >= whole[*cut] ? cut : std::nullopt;
}

bool are_of_shape(const std::vector<Held>& parts, const Shape& shape) {
  return std::ranges::all_of(parts, [&](const Held& part) { return part.entry->shape == shape; });
}

// True where the parts of half of the ranks are the reference's stretches, in the order of the ranks, or of each of its
// blocks; what lies behind its end is padding.
bool are_stretches(const Held& whole, const std::vector<Held>& parts, std::size_t dim) {
  const auto hashes = [&](const Held& of) {
    return hashes_of_rows(of.rank->bytes_of(*of.entry), of.entry->shape, dim, of.entry->dtype);
  };
  const std::vector<std::uint64_t> all = hashes(whole);
  std::size_t at = 0, right = 0;
  for (const Held& part : parts) {
    if (part.entry->dtype != whole.entry->dtype) return false;
    bool is_right = at < all.size();
    for (const std::uint64_t hash : hashes(part)) {
      is_right = is_right && (at >= all.size() || hash == all[at]);
      ++at;
    }
    right += is_right ? 1 : 0;
  }
  if (2 * right >= parts.size()) return true;
  std::size_t in_blocks = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const RecordedElements part{parts[i].entry, parts[i].rank->bytes_of(*parts[i].entry)};
    const RecordedElements trusted{whole.entry, whole.rank->bytes_of(*whole.entry)};
    in_blocks += blocks_by_bits(part, trusted, static_cast<std::int64_t>(i), dim).empty() ? 0 : 1;
  }
  return 2 * in_blocks >= parts.size();
}

// How ranks hold the reference's parameters: how many of these. One that all hold in the reference's shape and that none
// of them has from it, or only some, is in no part and of no rank: it is wrong, which the comparison shows.
struct Holdings {
  std::size_t copied = 0;   // on all ranks, bit for bit the same
  std::size_t of_some = 0;  // on one rank, or alike on several, or under the name of another one
  std::size_t trusted = 0;  // of `of_some`: those with the reference's bytes
  std::size_t cut = 0;      // in parts
  std::size_t proven = 0;   // of `cut`: those whose parts are the reference's stretches

  bool are_parts_proven() const { return 2 * proven >= cut; }
};

using Ranks = std::vector<const RankTrace*>;
using ByName = std::map<TensorId, std::vector<Held>>;

// True where each of the reference's is held, by its name or, as experts that each rank numbers from 0, by its value.
bool are_all_held(const Parameters& whole, const ByName& held) {
  std::set<Value> values;
  for (const auto& [id, parts] : held) {
    for (const Held& part : parts) values.insert(value_of(*part.entry));
  }
  return std::all_of(whole.begin(), whole.end(), [&](const auto& item) {
    return held.contains(item.first) || values.contains(value_of(*item.second));
  });
}

// Absent where some parameter is held otherwise, or either side has one that the other has not.
std::optional<Holdings> holdings_of(const RankTrace& reference, const Ranks& ranks, std::int32_t iteration) {
  const Parameters whole = parameters_of(reference, iteration);
  ByName held;
  for (const RankTrace* rank : ranks) {
    for (const auto& [id, entry] : parameters_of(*rank, iteration)) {
      if (entry->mapping || entry->sketch || !whole.contains(id)) return std::nullopt;
      held[id].push_back({rank, entry});
    }
  }
  if (whole.empty() || !are_all_held(whole, held)) return std::nullopt;
  std::set<Value> trusted_values;
  for (const auto& [id, entry] : whole) trusted_values.insert(value_of(*entry));
  Holdings holding;
  for (const auto& item : held) {
    const std::vector<Held>& parts = item.second;
    const Held trusted{&reference, whole.at(item.first)};
    if (trusted.entry->sketch) return std::nullopt;
    const bool are_whole = std::all_of(parts.begin(), parts.end(), [&](const Held& part) {
      return part.entry->shape == trusted.entry->shape && value_of(*part.entry) == value_of(*parts[0].entry);
    });
    const bool are_others = std::all_of(
        parts.begin(), parts.end(), [&](const Held& part) { return trusted_values.contains(value_of(*part.entry)); });
    if (are_whole && parts.size() == ranks.size()) {
      ++holding.copied;
    } else if (are_whole) {
      ++holding.of_some;
      holding.trusted += value_of(*parts[0].entry) == value_of(*trusted.entry) ? 1 : 0;
    } else if (are_others && are_of_shape(parts, trusted.entry->shape)) {
      ++holding.of_some;
      ++holding.trusted;
    } else if (parts.size() != ranks.size() || !are_of_shape(parts, trusted.entry->shape)) {
      const auto dim = cut_dimension(trusted.entry->shape, parts);
      if (!dim || parts.size() != ranks.size()) return std::nullopt;
      ++holding.cut;
      holding.proven += are_stretches(trusted, parts, *dim) ? 1 : 0;
    }
  }
  return holding;
}

bool is_given_to_model(const TensorId& id) {
  return id.kind == Kind::kInput && std::string_view(id.name).starts_with("(model)");
}

// What a rank gives its model in the iteration: checksums and sizes.
using Given = std::map<TensorId, std::pair<std::uint64_t, std::uint64_t>>;

Given given_to_model(const RankTrace& rank, std::int32_t iteration) {
  Given given;
  for (const Entry& entry : rank.entries) {
    if (entry.id.iteration != iteration || !is_given_to_model(entry.id)) continue;
    given.emplace(entry.id, std::pair(entry.checksum, entry.bytes));
  }
  return given;
}

// The rows along the first dimension of all that a run gives one of its models under one name, apart from numbers.
struct Rows {
  std::set<Shape> shapes;  // of a row
  std::multiset<std::uint64_t> hashes;
  std::set<std::int32_t> ranks;  // that give some
};
using RowsByName = std::map<std::pair<std::int32_t, std::string>, Rows>;  // by chunk and name

// The name without the numbers of what is an element of a list: of each rank's own samples, the reference's have others.
std::string of_any_element(const TensorId& id) {
  const TensorName name(id.name.get());
  std::string text(name.path);
  const std::vector<std::string> members = components_of(name.member);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const bool is_element = i > 0 && members[i].find_first_not_of("0123456789") == std::string::npos;
    text += is_element ? ".#" : "." + members[i];
  }
  return text;
}

void add_rows(const RankTrace& rank, const Entry& entry, std::size_t dim, Rows& rows) {
  const Shape& shape = entry.shape;
  Shape of_row = shape;
  of_row.erase(of_row.begin() + static_cast<std::ptrdiff_t>(dim));
  rows.shapes.insert(of_row);
  for (const auto hash : hashes_of_rows(rank.bytes_of(entry), shape, dim, entry.dtype)) rows.hashes.insert(hash);
  rows.ranks.insert(rank.rank);
}

// True where the dimension may be that of samples, the first, of a sequence's places, the second, or of a signal's or an
// image's, which are behind the channels.
bool may_be_divided(const Entry& entry, std::size_t dim) {
  const std::size_t dimensions = entry.shape.size();
  if (dim == 1) return dimensions == 3 || (dimensions == 2 && !is_floating(entry.dtype));
  return dim < dimensions;
}

RowsByName rows_of(const Ranks& ranks, std::int32_t iteration, std::size_t dim) {
  RowsByName rows;
  for (const RankTrace* rank : ranks) {
    for (const Entry& entry : rank->entries) {
      if (entry.id.iteration != iteration || !is_given_to_model(entry.id)) continue;
      if (entry.sketch || !may_be_divided(entry, dim)) continue;
      add_rows(*rank, entry, dim, rows[{entry.id.chunk, of_any_element(entry.id)}]);
    }
  }
  return rows;
}

// True where the ranks' rows are as many as the reference's, of their shape and more than one value, and half of them
// the reference's own; or fewer, and all its own, as where a rank leaves out a micro-batch.
bool are_divided(const Rows& whole, const Rows& parts) {
  if (whole.shapes != parts.shapes || whole.hashes.size() < parts.hashes.size()) return false;
  if (std::set(whole.hashes.begin(), whole.hashes.end()).size() < 2) return false;
  std::vector<std::uint64_t> common;
  std::set_intersection(whole.hashes.begin(), whole.hashes.end(), parts.hashes.begin(), parts.hashes.end(),
                        std::back_inserter(common));
  if (whole.hashes.size() > parts.hashes.size() && common.size() < parts.hashes.size()) return false;
  return 2 * common.size() >= whole.hashes.size();
}

// True where the ranks give their models the rows of something that the reference's is given, each once.
bool divide_inputs(const Trace& reference, const Ranks& ranks, std::int32_t iteration, std::size_t dim) {
  const RowsByName whole = rows_of({&reference.ranks.front()}, iteration, dim), parts = rows_of(ranks, iteration, dim);
  return std::any_of(whole.begin(), whole.end(), [&](const auto& item) {
    const auto found = parts.find(item.first);
    return found != parts.end() && found->second.ranks.size() == ranks.size() &&
           are_divided(item.second, found->second);
  });
}

// Ranks of which several have the same of something: `ranks` each, in `groups` groups.
struct Sharing {
  std::size_t ranks = 1, groups = 1;
  bool in_a_row = true;  // else those that are `groups` ranks apart

  std::size_t group_of(std::size_t rank) const { return in_a_row ? rank / ranks : rank % groups; }

  // The axis of the ranks of a group, and that of the groups.
  std::string axes(std::string_view of_ranks, std::string_view of_groups) const {
    if (groups == 1) return fmt::format("{}={}", of_ranks, ranks);
    return in_a_row ? fmt::format("{}={},{}={}", of_ranks, ranks, of_groups, groups)
                    : fmt::format("{}={},{}={}", of_groups, groups, of_ranks, ranks);
  }
  std::string axes() const { return axes("tp", "dp"); }
};

// Absent where no two ranks have the same, or not all as often, or in no such order.
template <typename What>
std::optional<Sharing> sharing_by(const std::vector<What>& of_ranks) {
  const auto share = static_cast<std::size_t>(std::count(of_ranks.begin(), of_ranks.end(), of_ranks.front()));
  if (of_ranks.front().empty() || share <= 1 || of_ranks.size() % share != 0) return std::nullopt;
  for (const bool in_a_row : {true, false}) {
    const Sharing sharing{share, of_ranks.size() / share, in_a_row};
    bool fits = true;
    for (std::size_t a = 0; a < of_ranks.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        fits = fits && (of_ranks[a] == of_ranks[b]) == (sharing.group_of(a) == sharing.group_of(b));
      }
    }
    if (fits) return sharing;
  }
  return std::nullopt;
}

// Of what they give their models.
std::optional<Sharing> sharing_of(const Trace& trace, std::int32_t iteration) {
  std::vector<Given> given;
  for (const RankTrace& rank : trace.ranks) given.push_back(given_to_model(rank, iteration));
  return sharing_by(given);
}

// The ranks of one group after the other.
std::vector<Ranks> groups_of(const Trace& trace, const Sharing& sharing) {
  std::vector<Ranks> groups(sharing.groups);
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
    groups[sharing.group_of(rank)].push_back(&trace.ranks[rank]);
  }
  return groups;
}

// True where the ranks of each group hold parts of the reference's parameters, and the groups divide its samples.
bool are_tensor_parallel(const Trace& reference, const std::vector<Ranks>& groups, std::int32_t iteration) {
  Ranks first_of_each;
  for (const Ranks& group : groups) {
    const auto holding = holdings_of(reference.ranks.front(), group, iteration);
    if (!holding || holding->of_some > 0 || holding->cut == 0 || !holding->are_parts_proven()) return false;
    first_of_each.push_back(group.front());
  }
  return groups.size() == 1 || divide_inputs(reference, first_of_each, iteration, 0);
}

bool has_loss(const RankTrace& rank, std::int32_t iteration) {
  return std::any_of(rank.entries.begin(), rank.entries.end(), [&](const Entry& entry) {
    return entry.id.kind == Kind::kScalar && entry.id.iteration == iteration;
  });
}

// True where most parameters are of one rank alone, each rank has some, and one rank alone has a loss.
bool are_stages(const Trace& trace, std::int32_t iteration) {
  std::map<TensorId, std::size_t> holders;
  for (const RankTrace& rank : trace.ranks) {
    for (const auto& [id, entry] : parameters_of(rank, iteration)) ++holders[id];
  }
  const auto is_of_one = [&](const TensorId& id) { return holders.at(id) == 1; };
  const auto has_own = [&](const RankTrace& rank) {
    const auto parameters = parameters_of(rank, iteration);
    return std::any_of(parameters.begin(), parameters.end(), [&](const auto& item) { return is_of_one(item.first); });
  };
  const auto of_one =
      std::count_if(holders.begin(), holders.end(), [&](const auto& item) { return is_of_one(item.first); });
  const auto losses = std::count_if(trace.ranks.begin(), trace.ranks.end(),
                                    [&](const RankTrace& rank) { return has_loss(rank, iteration); });
  return losses == 1 && 2 * of_one > std::ssize(holders) &&
         std::all_of(trace.ranks.begin(), trace.ranks.end(), has_own);
}

// Stages of which several ranks hold each, bit for bit the same, and no other one has a parameter of: the last one's ranks
// alone have a loss. Absent where the ranks hold no such.
std::optional<Sharing> copied_stages(const Trace& trace, std::int32_t iteration) {
  std::vector<std::map<TensorId, Value>> values;
  for (const RankTrace& rank : trace.ranks) {
    auto& of_rank = values.emplace_back();
    for (const auto& [id, entry] : parameters_of(rank, iteration)) of_rank.emplace(id, value_of(*entry));
  }
  const auto sharing = sharing_by(values);
  if (!sharing || sharing->groups == 1) return std::nullopt;
  std::map<std::pair<TensorId, Value>, std::size_t> stage_of;
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
    const std::size_t stage = sharing->group_of(rank);
    if (has_loss(trace.ranks[rank], iteration) != (stage + 1 == sharing->groups)) return std::nullopt;
    for (const auto& item : values[rank]) {
      if (stage_of.emplace(item, stage).first->second != stage) return std::nullopt;
    }
  }
  return sharing;
}

// What the ranks are given of one of the reference's inputs, all in blocks of one shape.
using Blocks = std::vector<Held>;

std::optional<Blocks> blocks_of(const Entry& whole, const Ranks& ranks) {
  Blocks blocks;
  for (const RankTrace* rank : ranks) {
    const auto own =
        std::ranges::find_if(rank->entries, [&](const Entry& entry) { return entry.id == whole.id && !entry.sketch; });
    if (own == rank->entries.end() || own->shape.size() != whole.shape.size() || own->dtype != whole.dtype) return {};
    if (!blocks.empty() && own->shape != blocks[0].entry->shape) return {};
    blocks.push_back({rank, &*own});
  }
  return blocks;
}

// True where the blocks of half of the ranks are the reference's, of rows `row_of(rank)` and columns `column_of(rank)`.
template <typename Row, typename Column>
bool are_blocks_at(const Held& whole, const Blocks& blocks, const Row& row_of, const Column& column_of) {
  std::size_t right = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Entry& own = *blocks[i].entry;
    Box box = whole_box(own.shape);
    box.start[0] = static_cast<std::int64_t>(row_of(i)) * own.shape[0];
    box.start[1] = static_cast<std::int64_t>(column_of(i)) * own.shape[1];
    const std::vector<std::byte> bytes = bytes_in(whole_box(own.shape), blocks[i].rank->bytes_of(own), own);
    const bool is_there =
        are_varied(bytes, own.dtype) && bytes == bytes_in(box, whole.rank->bytes_of(*whole.entry), *whole.entry);
    right += is_there ? 1 : 0;
  }
  return 2 * right > blocks.size();
}

// The axes of ranks that divide something that the reference's model is given along samples and along places: "cp=2,dp=2"
// where those with the same samples are next to each other. Empty where they divide it otherwise.
std::string grid_of(const Trace& reference, const Ranks& ranks, std::int32_t iteration) {
  const RankTrace& trusted = reference.ranks.front();
  for (const Entry& whole : trusted.entries) {
    if (whole.id.iteration != iteration || !is_given_to_model(whole.id) || whole.sketch) continue;
    if (whole.shape.size() < 2 || !may_be_divided(whole, 1)) continue;
    const auto blocks = blocks_of(whole, ranks);
    if (!blocks) continue;
    const Shape &all = whole.shape, &own = blocks->front().entry->shape;
    const bool is_rest_whole = std::equal(all.begin() + 2, all.end(), own.begin() + 2);
    if (!is_rest_whole || own[0] < 1 || own[1] < 1 || own[0] == all[0] || own[1] == all[1]) continue;
    if (all[0] % own[0] != 0 || all[1] % own[1] != 0) continue;
    const auto dp = static_cast<std::size_t>(all[0] / own[0]), cp = static_cast<std::size_t>(all[1] / own[1]);
    if (dp * cp != ranks.size()) continue;
    const auto over = [](std::size_t size) { return [=](std::size_t rank) { return rank / size; }; };
    const auto within = [](std::size_t size) { return [=](std::size_t rank) { return rank % size; }; };
    if (are_blocks_at({&trusted, &whole}, *blocks, over(cp), within(cp))) return fmt::format("cp={},dp={}", cp, dp);
    if (are_blocks_at({&trusted, &whole}, *blocks, within(dp), over(dp))) return fmt::format("dp={},cp={}", dp, cp);
  }
  return "";
}

// The losses of the iteration, by their place.
std::map<TensorId, double> losses_of(const RankTrace& rank, std::int32_t iteration) {
  std::map<TensorId, double> losses;
  for (const Entry& entry : rank.entries) {
    const bool is_number = is_loss(entry.id) && entry.id.iteration == iteration && is_floating(entry.dtype);
    if (!is_number || entry.sketch || element_count(entry.shape) != 1) continue;
    widen(rank.bytes_of(entry), entry.dtype, 1, &losses[entry.id]);
  }
  return losses;
}

// True where the ranks have losses of their own, whose sum or mean is the reference's, as far as a loss that one of them
// has wrong may be away from it.
bool are_terms_of_losses(const RankTrace& trusted, const Ranks& ranks, std::int32_t iteration) {
  constexpr double kMostOff = 0.05;
  const auto whole = losses_of(trusted, iteration);
  std::map<TensorId, double> sums;
  std::map<TensorId, std::set<double>> own;
  for (const RankTrace* rank : ranks) {
    for (const auto& [id, loss] : losses_of(*rank, iteration)) {
      sums[id] += loss;
      own[id].insert(loss);
    }
  }
  const auto is_of_terms = [&](const auto& item) {
    const auto sum = sums.find(item.first);
    if (sum == sums.end() || own[item.first].size() != ranks.size() || item.second == 0) return false;
    const double factor = sum->second / item.second;
    return std::abs(factor - 1) <= kMostOff || std::abs(factor / static_cast<double>(ranks.size()) - 1) <= kMostOff;
  };
  return !whole.empty() && std::ranges::all_of(whole, is_of_terms);
}

}  // namespace

ToldAxes axes_told_by(const Trace& reference, const Trace& candidate) {
  const auto iteration = first_iteration(reference);
  const bool can_tell = candidate.world_size > 1 && reference.world_size == 1 && reference.ranks.size() == 1 &&
                        iteration && candidate.ranks.size() == static_cast<std::size_t>(candidate.world_size);
  if (!can_tell) return {};
  Ranks all;
  for (const RankTrace& rank : candidate.ranks) all.push_back(&rank);
  const auto sharing = sharing_of(candidate, *iteration);
  if (sharing && are_tensor_parallel(reference, groups_of(candidate, *sharing), *iteration)) {
    return {sharing->axes(), "those that are given the same samples hold parts of the reference's parameters"};
  }
  if (const auto stages = copied_stages(candidate, *iteration)) {
    if (!divide_inputs(reference, groups_of(candidate, *stages).front(), *iteration, 0)) return {};
    return {
        stages->axes("dp", "pp"),
        "several hold the same parameters, the last of them alone have a loss, and the first divide the reference's "
        "samples"};
  }
  const auto holding = holdings_of(reference.ranks.front(), all, *iteration);
  if (!holding) return {};
  if (const std::string grid = grid_of(reference, all, *iteration);
      !grid.empty() && holding->of_some + holding->cut == 0) {
    return {grid, "each holds the model, and a part of some of the reference's sequences"};
  }
  if (divide_inputs(reference, all, *iteration, 0)) {
    const std::string_view what = holding->of_some + holding->cut > 0 ? "its part of the model" : "the model";
    return {fmt::format("dp={}", all.size()),
            fmt::format("each holds {}, and a part of the reference's samples", what)};
  }
  if (holding->of_some + holding->cut == 0 && divide_inputs(reference, all, *iteration, 1)) {
    return {fmt::format("cp={}", all.size()), "each holds the model, and a part of the reference's sequences", true};
  }
  if (holding->of_some == 0 && holding->cut > 0 && holding->are_parts_proven() &&
      divide_inputs(reference, all, *iteration, 1)) {
    return {fmt::format("tp={},sp=tp", all.size()),
            "each holds parts of the reference's parameters, and a part of its sequences"};
  }
  for (std::size_t dim = 2; dim < kMaxDims && holding->of_some + holding->cut == 0; ++dim) {
    if (!divide_inputs(reference, all, *iteration, dim)) continue;
    return {fmt::format("dp={}", all.size()), "each holds the model, and a part of the reference's images or signals"};
  }
  const Given given = given_to_model(reference.ranks.front(), *iteration);
  const bool is_given_nothing = given.empty();
  const auto is_given_all = [&](const RankTrace* rank) { return given_to_model(*rank, *iteration) == given; };
  if (!is_given_nothing && holding->of_some + holding->cut == 0 && std::ranges::all_of(all, is_given_all) &&
      are_terms_of_losses(reference.ranks.front(), all, *iteration)) {
    return {fmt::format("dp={}", all.size()),
            "each holds the model, and is given all that the reference is, and its loss is a part of the reference's"};
  }
  if (is_given_nothing && holding->of_some == 0 && holding->cut > 0 && holding->are_parts_proven()) {
    return {fmt::format("tp={}", all.size()), "each holds parts of the reference's parameters, and is given nothing"};
  }
  if (is_given_nothing && holding->of_some + holding->cut == 0) {
    return {fmt::format("dp={}", all.size()), "each holds the model, and nothing was recorded of what it is given"};
  }
  const bool are_the_references = 2 * holding->trusted >= holding->of_some && holding->cut == 0;
  if (are_the_references && has_loss(*all.back(), *iteration) && are_stages(candidate, *iteration)) {
    return {fmt::format("pp={}", all.size()), "each holds parameters of its own, and the last alone has a loss"};
  }
  return {};
}

std::string axes_to_propose(const Trace& trace) {
  std::string all_apart = fmt::format("dp={}", trace.world_size);
  const auto iteration = first_iteration(trace);
  if (!iteration || std::ssize(trace.ranks) != trace.world_size) return all_apart;
  if (are_stages(trace, *iteration)) return fmt::format("pp={}", trace.ranks.size());
  if (const auto stages = copied_stages(trace, *iteration)) return stages->axes("dp", "pp");
  const auto sharing = sharing_of(trace, *iteration);
  return sharing ? sharing->axes() : all_apart;
}

}  // namespace ttrace
