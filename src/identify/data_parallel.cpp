#include "identify/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/tensor_name.h"
#include "identify/samples.h"

namespace ttrace {
namespace {

std::optional<std::int32_t> first_iteration(const Trace& trace) {
  std::optional<std::int32_t> first;
  for (const RankTrace& rank : trace.ranks) {
    for (const Entry& entry : rank.entries) first = std::min(first.value_or(entry.id.iteration), entry.id.iteration);
  }
  return first;
}

// The parameters of the iteration that a rank holds.
std::map<TensorId, const Entry*> parameters_of(const RankTrace& rank, std::int32_t iteration) {
  std::map<TensorId, const Entry*> parameters;
  for (const Entry& entry : rank.entries) {
    if (entry.id.kind == Kind::kParam && entry.id.iteration == iteration) parameters.emplace(entry.id, &entry);
  }
  return parameters;
}

// True where each rank holds all of the reference's parameters in their shapes, with the bytes of the first rank.
bool holds_one_model(const Trace& reference, const Trace& candidate, std::int32_t iteration) {
  const auto whole = parameters_of(reference.ranks.front(), iteration);
  const auto first = parameters_of(candidate.ranks.front(), iteration);
  const auto is_whole = [&](const auto& own) {
    return own.size() == whole.size() && std::equal(own.begin(), own.end(), whole.begin(), [](auto& one, auto& other) {
             const Entry& entry = *one.second;
             return one.first == other.first && entry.shape == other.second->shape && !entry.mapping && !entry.sketch;
           });
  };
  const auto is_copy = [&](const RankTrace& rank) {
    const auto own = parameters_of(rank, iteration);
    return is_whole(own) && std::equal(own.begin(), own.end(), first.begin(), [](auto& one, auto& other) {
             return one.second->checksum == other.second->checksum && one.second->bytes == other.second->bytes;
           });
  };
  return !whole.empty() && std::all_of(candidate.ranks.begin(), candidate.ranks.end(), is_copy);
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

// The rows along the first dimension of all that a run gives its model under one name, apart from numbers.
struct Rows {
  std::set<Shape> shapes;  // of a row
  std::multiset<std::uint64_t> hashes;
};
using RowsByName = std::map<std::string, Rows>;

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

void add_rows(const RankTrace& rank, const Entry& entry, Rows& rows) {
  const Shape& shape = entry.shape;
  rows.shapes.emplace(shape.begin() + 1, shape.end());
  for (const std::uint64_t hash : hashes_of_rows(rank.bytes_of(entry), shape, 0, entry.dtype)) rows.hashes.insert(hash);
}

RowsByName rows_of(const Trace& trace, std::int32_t iteration) {
  RowsByName rows;
  for (const RankTrace& rank : trace.ranks) {
    for (const Entry& entry : rank.entries) {
      if (entry.id.iteration != iteration || !is_given_to_model(entry.id)) continue;
      if (Shape(entry.shape).empty() || entry.sketch) continue;
      add_rows(rank, entry, rows[of_any_element(entry.id)]);
    }
  }
  return rows;
}

// True where the ranks' rows are as many as the reference's, of their shape and more than one value, and half of them
// the reference's own.
bool are_divided(const Rows& whole, const Rows& parts) {
  if (whole.shapes != parts.shapes || whole.hashes.size() != parts.hashes.size()) return false;
  if (std::set(whole.hashes.begin(), whole.hashes.end()).size() < 2) return false;
  std::vector<std::uint64_t> common;
  std::set_intersection(whole.hashes.begin(), whole.hashes.end(), parts.hashes.begin(), parts.hashes.end(),
                        std::back_inserter(common));
  return 2 * common.size() >= whole.hashes.size();
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

}  // namespace

std::string data_parallel_axes(const Trace& reference, const Trace& candidate) {
  const auto iteration = first_iteration(reference);
  const bool can_tell = candidate.world_size > 1 && reference.world_size == 1 && reference.ranks.size() == 1 &&
                        iteration && candidate.ranks.size() == static_cast<std::size_t>(candidate.world_size);
  if (!can_tell || !holds_one_model(reference, candidate, *iteration)) return "";
  const RowsByName whole = rows_of(reference, *iteration), parts = rows_of(candidate, *iteration);
  const bool is_divided = std::any_of(whole.begin(), whole.end(), [&](const auto& item) {
    const auto found = parts.find(item.first);
    return found != parts.end() && are_divided(item.second, found->second);
  });
  return is_divided ? fmt::format("dp={}", candidate.world_size) : "";
}

std::string axes_to_propose(const Trace& trace) {
  const std::size_t ranks = trace.ranks.size();
  std::string all_apart = fmt::format("dp={}", trace.world_size);
  const auto iteration = first_iteration(trace);
  if (!iteration || std::ssize(trace.ranks) != trace.world_size) return all_apart;
  if (are_stages(trace, *iteration)) return fmt::format("pp={}", ranks);
  std::vector<Given> given;
  for (const RankTrace& rank : trace.ranks) given.push_back(given_to_model(rank, *iteration));
  if (given.front().empty()) return all_apart;
  const auto share = static_cast<std::size_t>(std::count(given.begin(), given.end(), given.front()));
  if (share == ranks) return fmt::format("tp={}", ranks);
  if (share <= 1 || ranks % share != 0) return all_apart;
  // True where exactly the ranks of one number, by `part`, read the same.
  const auto are_parts = [&](const auto& part) {
    for (std::size_t a = 0; a < ranks; ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        if ((given[a] == given[b]) != (part(a) == part(b))) return false;
      }
    }
    return true;
  };
  const std::size_t parts = ranks / share;
  if (are_parts([&](std::size_t rank) { return rank / share; })) return fmt::format("tp={},dp={}", share, parts);
  if (are_parts([&](std::size_t rank) { return rank % parts; })) return fmt::format("dp={},tp={}", parts, share);
  return all_apart;
}

}  // namespace ttrace
