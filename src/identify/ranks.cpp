#include "identify/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/describe.h"
#include "base/error.h"

namespace ttrace {
namespace {

// Far above the size of any cluster. It keeps a trace that claims more from making us allocate memory for it.
constexpr std::int64_t kMaxRanks = std::int64_t{1} << 20;

// Returns -1 where no axis has the name.
int index_in(const Axes& axes, std::string_view name) {
  const auto found = std::find_if(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.name == name; });
  return found == axes.end() ? -1 : static_cast<int>(found - axes.begin());
}

Finding make_finding(Verdict verdict, Reason reason, std::string message, std::vector<std::int32_t> ranks) {
  Finding finding;
  finding.verdict = verdict;
  finding.reason = reason;
  finding.message = std::move(message);
  finding.ranks = std::move(ranks);
  return finding;
}

void check_factoring(const Trace& trace, const Axes& axes) {
  const std::string at = trace.directory.string();
  std::int64_t product = 1;
  for (const Axis& axis : axes) {
    if (axis.size < 1 || axis.size > trace.world_size) {
      throw InputError(fmt::format("{}: axis '{}' has size {}; expected 1 to {}, the number of ranks", at, axis.name,
                                   axis.size, trace.world_size));
    }
    product = std::min(product * axis.size, kMaxRanks + 1);
  }
  if (product != trace.world_size) {
    throw InputError(fmt::format("{}: the axes '{}' do not make {} ranks; expected sizes whose product is that", at,
                                 to_string(axes), trace.world_size));
  }
}

void check_mesh(const Trace& trace) {
  const std::string at = trace.directory.string();
  if (trace.world_size < 1 || trace.world_size > kMaxRanks) {
    throw InputError(fmt::format("{}: world size is {}; expected 1 to {}", at, trace.world_size, kMaxRanks));
  }
  for (const Axes& axes : factorings_of(trace.mesh)) check_factoring(trace, axes);
  for (const auto& [alias, axis] : trace.mesh.aliases) {
    if (index_in(all_axes(trace.mesh), axis) < 0) {
      throw InputError(fmt::format("{}: '{}' is an alias of '{}', which is not an axis of the trace", at, alias, axis));
    }
  }
}

AxisCoordinates read_coordinates(const RankTrace& rank, const Axes& axes) {
  AxisCoordinates coordinates;
  for (const Axis& axis : axes) {
    const auto found = rank.coordinates.find(axis.name);
    if (found == rank.coordinates.end() || found->second < 0 || found->second >= axis.size) {
      throw InputError(fmt::format("{}: rank {} has {} coordinate on axis '{}'; expected 0 to {}", rank.path.string(),
                                   rank.rank, found == rank.coordinates.end() ? "no" : std::to_string(found->second),
                                   axis.name, axis.size - 1));
    }
    coordinates.push_back(found->second);
  }
  return coordinates;
}

void list_present(const Trace& trace, RankTable& table) {
  for (const RankTrace& rank : trace.ranks) {
    if (rank.rank < 0 || rank.rank >= trace.world_size) {
      throw InputError(fmt::format("{}: rank {} of {}; expected 0 to {}", rank.path.string(), rank.rank,
                                   trace.world_size, trace.world_size - 1));
    }
    table.ranks.push_back({&rank, read_coordinates(rank, table.axes)});
  }
  std::stable_sort(table.ranks.begin(), table.ranks.end(),
                   [](const PresentRank& a, const PresentRank& b) { return a.trace->rank < b.trace->rank; });
  std::vector<PresentRank> once;
  for (PresentRank& rank : table.ranks) {
    if (!once.empty() && once.back().trace->rank == rank.trace->rank) {
      table.findings.push_back(make_finding(
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

std::size_t linear_index(const RankTable& table, const Factoring& factoring, const AxisCoordinates& coordinates) {
  std::int64_t index = 0;
  for (std::size_t i = factoring.axes.size(); i-- > 0;)
    index = index * table.axes[factoring.axes[i]].size + coordinates[factoring.axes[i]];
  return static_cast<std::size_t>(index);
}

// Lists the ranks without a file, and those whose file is incomplete.
void list_missing_and_crashed(const Trace& trace, RankTable& table) {
  std::vector<bool> present(static_cast<std::size_t>(trace.world_size), false);
  for (const PresentRank& rank : table.ranks) {
    present[static_cast<std::size_t>(rank.trace->rank)] = true;
    if (!rank.trace->is_whole()) table.crashed.push_back(rank.trace->rank);
  }
  for (std::int32_t rank = 0; rank < trace.world_size; ++rank) {
    if (!present[static_cast<std::size_t>(rank)]) table.missing.push_back(rank);
  }
}

// Fills `rank_at`. A missing rank has recorded no coordinates; it is taken to have those that the rank order gives it,
// unless another rank has them.
void assign_ranks(const Trace& trace, const RankTable& table, Factoring& factoring) {
  factoring.rank_at.assign(static_cast<std::size_t>(trace.world_size), -1);
  for (const PresentRank& rank : table.ranks) {
    std::int32_t& at = factoring.rank_at[linear_index(table, factoring, rank.coordinates)];
    if (at >= 0) {
      AxisCoordinates coordinates;
      for (const std::size_t axis : factoring.axes) coordinates.push_back(rank.coordinates[axis]);
      throw InputError(fmt::format("{}: ranks {} and {} have the same coordinates {}; expected each place once",
                                   trace.directory.string(), at, rank.trace->rank, to_string(coordinates)));
    }
    at = rank.trace->rank;
  }
  for (const std::int32_t rank : table.missing) {
    // In rank order the linear index of the coordinates is the rank itself.
    std::int32_t& at = factoring.rank_at[static_cast<std::size_t>(rank)];
    if (at < 0) at = rank;
  }
}

}  // namespace

RankTable rank_table_of(const Trace& trace) {
  check_mesh(trace);
  RankTable table;
  table.mesh = trace.mesh;
  table.axes = all_axes(table.mesh);
  list_present(trace, table);
  list_missing_and_crashed(trace, table);
  for (std::vector<std::size_t>& axes : indexed_factorings_of(table.mesh)) {
    table.factorings.push_back({std::move(axes), {}});
    assign_ranks(trace, table, table.factorings.back());
  }
  if (!table.missing.empty()) {
    table.findings.push_back(make_finding(Verdict::kMissing, Reason::kMissingRank,
                                          fmt::format("{} of {} left no file in {}", describe_ranks(table.missing),
                                                      trace.world_size, trace.directory.string()),
                                          table.missing));
  }
  if (!table.crashed.empty()) {
    table.findings.push_back(
        make_finding(Verdict::kMissing, Reason::kIncompleteRank,
                     fmt::format("{} did not finish: no completion mark; only what it recorded until then is there",
                                 describe_ranks(table.crashed)),
                     table.crashed));
  }
  return table;
}

std::int32_t rank_at(const RankTable& table, const Factoring& factoring, const AxisCoordinates& coordinates) {
  return factoring.rank_at[linear_index(table, factoring, coordinates)];
}

std::int64_t coordinate_on(const PresentRank& rank, int axis) {
  return axis < 0 ? 0 : rank.coordinates[static_cast<std::size_t>(axis)];
}

std::vector<std::vector<std::size_t>> indexed_factorings_of(const Mesh& mesh) {
  const Axes all = all_axes(mesh);
  std::vector<std::vector<std::size_t>> factorings;
  for (const Axes& axes : factorings_of(mesh)) {
    factorings.emplace_back();
    for (const Axis& axis : axes) factorings.back().push_back(static_cast<std::size_t>(index_in(all, axis.name)));
  }
  return factorings;
}

bool has_axis(const std::vector<std::size_t>& factoring, int axis) {
  return axis >= 0 && std::find(factoring.begin(), factoring.end(), static_cast<std::size_t>(axis)) != factoring.end();
}

std::string describe_rank(const RankTable& table, const Factoring& factoring, const AxisCoordinates& coordinates) {
  const std::int32_t rank = rank_at(table, factoring, coordinates);
  std::vector<std::string> words;
  for (const std::size_t i : factoring.axes) words.push_back(fmt::format("{}={}", table.axes[i].name, coordinates[i]));
  const auto among = [rank](const std::vector<std::int32_t>& ranks) {
    return std::binary_search(ranks.begin(), ranks.end(), rank);
  };
  if (rank < 0 || among(table.missing)) words.push_back("its file is missing");
  if (among(table.crashed)) words.push_back("its file is incomplete");
  return fmt::format("rank {}{}", rank < 0 ? "unknown" : std::to_string(rank),
                     words.empty() ? "" : fmt::format(" ({})", fmt::join(words, ", ")));
}

}  // namespace ttrace
