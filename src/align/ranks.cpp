#include "align/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "align/describe.h"
#include "ttrace/error.h"

namespace ttrace {
namespace {

// Far above any cluster; a trace that claims more must not make us allocate for it.
constexpr std::int64_t kMaxRanks = std::int64_t{1} << 20;

Finding about_ranks(Verdict verdict, Reason reason, std::string message, std::vector<std::int32_t> ranks) {
  Finding finding;
  finding.verdict = verdict;
  finding.reason = reason;
  finding.message = std::move(message);
  finding.ranks = std::move(ranks);
  return finding;
}

void check_mesh(const Trace& trace) {
  const std::string at = trace.directory.string();
  if (trace.world_size < 1 || trace.world_size > kMaxRanks) {
    throw InputError(fmt::format("{}: world size is {}; expected 1 to {}", at, trace.world_size, kMaxRanks));
  }
  std::int64_t product = 1;
  for (const Axis& axis : trace.axes) {
    if (axis.size < 1 || axis.size > trace.world_size) {
      throw InputError(fmt::format("{}: axis '{}' has size {}; expected 1 to {}, the number of ranks", at, axis.name,
                                   axis.size, trace.world_size));
    }
    product = std::min(product * axis.size, kMaxRanks + 1);
  }
  if (product != trace.world_size) {
    throw InputError(fmt::format("{}: the axes '{}' do not make {} ranks; expected sizes whose product is that", at,
                                 to_string(Mesh{trace.axes, trace.aliases}), trace.world_size));
  }
  for (const auto& [alias, axis] : trace.aliases) {
    if (axis_index({trace.axes, {}}, axis) < 0) {
      throw InputError(fmt::format("{}: '{}' is an alias of '{}', which is not an axis of the trace", at, alias, axis));
    }
  }
}

Place place_of(const RankTrace& rank, const Axes& axes) {
  Place place;
  for (const Axis& axis : axes) {
    const auto found = rank.coordinates.find(axis.name);
    if (found == rank.coordinates.end() || found->second < 0 || found->second >= axis.size) {
      throw InputError(fmt::format("{}: rank {} has {} coordinate on axis '{}'; expected 0 to {}", rank.path.string(),
                                   rank.rank, found == rank.coordinates.end() ? "no" : std::to_string(found->second),
                                   axis.name, axis.size - 1));
    }
    place.push_back(found->second);
  }
  return place;
}

void list_present(const Trace& trace, RankTable& table) {
  for (const RankTrace& rank : trace.ranks) {
    if (rank.rank < 0 || rank.rank >= trace.world_size) {
      throw InputError(fmt::format("{}: rank {} of {}; expected 0 to {}", rank.path.string(), rank.rank,
                                   trace.world_size, trace.world_size - 1));
    }
    table.ranks.push_back({&rank, place_of(rank, trace.axes)});
  }
  std::stable_sort(table.ranks.begin(), table.ranks.end(),
                   [](const PresentRank& a, const PresentRank& b) { return a.trace->rank < b.trace->rank; });
  std::vector<PresentRank> once;
  for (PresentRank& rank : table.ranks) {
    if (!once.empty() && once.back().trace->rank == rank.trace->rank) {
      table.findings.push_back(about_ranks(
          Verdict::kFail, Reason::kDuplicateRank,
          fmt::format("rank {} appears twice, in {} and in {}: two processes took themselves for the same rank",
                      rank.trace->rank, once.back().trace->path.string(), rank.trace->path.string()),
          {rank.trace->rank}));
      continue;
    }
    once.push_back(std::move(rank));
  }
  table.ranks = std::move(once);
}

// Who is missing follows from the numbers; where they stood, from the places left over, if those are
// where the rank order puts them.
void place_ranks(const Trace& trace, RankTable& table) {
  const auto world = static_cast<std::size_t>(trace.world_size);
  std::vector<bool> present(world, false);
  table.rank_at.assign(world, -1);
  for (const PresentRank& rank : table.ranks) {
    std::int32_t& at = table.rank_at[linear(table, rank.place)];
    if (at >= 0) {
      throw InputError(fmt::format("{}: ranks {} and {} have the same coordinates {}; expected each place once",
                                   trace.directory.string(), at, rank.trace->rank, to_string(rank.place)));
    }
    at = rank.trace->rank;
    present[static_cast<std::size_t>(at)] = true;
    if (!rank.trace->complete) table.crashed.push_back(at);
  }
  for (std::size_t rank = 0; rank < world; ++rank) {
    if (present[rank]) continue;
    table.missing.push_back(static_cast<std::int32_t>(rank));
    // The linear place of the rank order is the rank itself.
    if (table.rank_at[rank] < 0) table.rank_at[rank] = static_cast<std::int32_t>(rank);
  }
}

}  // namespace

RankTable ranks_of(const Trace& trace) {
  check_mesh(trace);
  RankTable table;
  table.mesh = {trace.axes, trace.aliases};
  list_present(trace, table);
  place_ranks(trace, table);
  if (!table.missing.empty()) {
    table.findings.push_back(about_ranks(Verdict::kMissing, Reason::kMissingRank,
                                         fmt::format("{} of {} left no file in {}", describe_ranks(table.missing),
                                                     trace.world_size, trace.directory.string()),
                                         table.missing));
  }
  if (!table.crashed.empty()) {
    table.findings.push_back(
        about_ranks(Verdict::kMissing, Reason::kIncompleteRank,
                    fmt::format("{} did not finish: no completion mark; only what it recorded until then is there",
                                describe_ranks(table.crashed)),
                    table.crashed));
  }
  return table;
}

std::size_t linear(const RankTable& table, const Place& place) {
  std::int64_t index = 0;
  for (std::size_t i = place.size(); i-- > 0;) index = index * table.mesh.axes[i].size + place[i];
  return static_cast<std::size_t>(index);
}

int axis_index(const Mesh& mesh, const std::string& name) {
  const auto alias = mesh.aliases.find(name);
  const std::string& axis = alias == mesh.aliases.end() ? name : alias->second;
  for (std::size_t i = 0; i < mesh.axes.size(); ++i) {
    if (mesh.axes[i].name == axis) return static_cast<int>(i);
  }
  return -1;
}

std::string describe_rank(const RankTable& table, const Place& place) {
  const std::int32_t rank = table.rank_at[linear(table, place)];
  std::vector<std::string> words;
  for (std::size_t i = 0; i < place.size(); ++i) {
    words.push_back(fmt::format("{}={}", table.mesh.axes[i].name, place[i]));
  }
  const auto among = [rank](const std::vector<std::int32_t>& ranks) {
    return std::binary_search(ranks.begin(), ranks.end(), rank);
  };
  if (rank < 0 || among(table.missing)) words.push_back("its file is missing");
  if (among(table.crashed)) words.push_back("its file is incomplete");
  return fmt::format("rank {}{}", rank < 0 ? "unknown" : std::to_string(rank),
                     words.empty() ? "" : fmt::format(" ({})", fmt::join(words, ", ")));
}

}  // namespace ttrace
