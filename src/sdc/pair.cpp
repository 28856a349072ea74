#include "sdc/pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/parallel_for.h"

namespace ttrace {
namespace {

std::string directory_of(const Trace& trace) { return printable(trace.directory.string()); }

const RankTrace& only_rank(const Trace& trace, std::int32_t rank) {
  const auto of_rank = [&](const RankTrace& other) { return other.rank == rank; };
  const auto found = std::find_if(trace.ranks.begin(), trace.ranks.end(), of_rank);
  const auto count = std::count_if(trace.ranks.begin(), trace.ranks.end(), of_rank);
  if (count == 1) return *found;
  throw InputError(fmt::format("{}: {} files of rank {}; expected one", directory_of(trace), count, rank));
}

void require_same_mesh(const Trace& healthy, const Trace& suspect) {
  if (healthy.run_id == suspect.run_id) {
    throw InputError(
        fmt::format("{} and {} are one and the same run; expected two", directory_of(healthy), directory_of(suspect)));
  }
  if (healthy.world_size != suspect.world_size) {
    throw InputError(fmt::format("{}: {} ranks; expected {}, as in {}", directory_of(suspect), suspect.world_size,
                                 healthy.world_size, directory_of(healthy)));
  }
  if (factorings_of(healthy.mesh) != factorings_of(suspect.mesh)) {
    throw InputError(fmt::format("{}: its ranks lie on other axes than those of {}; expected the same",
                                 directory_of(suspect), directory_of(healthy)));
  }
}

using Entries = std::map<TensorId, const Entry*>;

Entries entries_of(const RankTrace& rank) {
  Entries entries;
  for (const Entry& entry : rank.entries) {
    if (entries.emplace(entry.id, &entry).second) continue;
    throw InputError(
        fmt::format("{}: {}: recorded twice; expected once", printable(rank.path.string()), to_string(entry.id)));
  }
  return entries;
}

[[noreturn]] void fail_missing(const RankTrace& rank, const TensorId& id, const RankTrace& other) {
  throw InputError(fmt::format("{}: no {}, which {} has; expected two runs of one program",
                               printable(rank.path.string()), to_string(id), printable(other.path.string())));
}

void require_same_form(const RankTrace& rank, const Entry& healthy, const Entry& suspect) {
  if (healthy.dtype == suspect.dtype && healthy.shape == suspect.shape) return;
  throw InputError(fmt::format("{}: {} is {} {}; expected {} {}, as in the healthy run", printable(rank.path.string()),
                               to_string(suspect.id), name_of(suspect.dtype), to_string(suspect.shape),
                               name_of(healthy.dtype), to_string(healthy.shape)));
}

void compare_bits(RecordedPair& pair) {
  const std::byte* a = pair.rank->bytes_of(*pair.healthy);
  const std::byte* b = pair.suspect_rank->bytes_of(*pair.suspect);
  pair.mismatch = mismatch_of(a, b, pair.healthy->dtype, element_count(pair.healthy->shape));
  pair.rank->file->release(a, pair.healthy->bytes);
  pair.suspect_rank->file->release(b, pair.suspect->bytes);
}

void pair_rank(const RankTrace& healthy, const RankTrace& suspect, std::vector<RecordedPair>& pairs) {
  const Entries suspect_entries = entries_of(suspect);
  const Entries healthy_entries = entries_of(healthy);
  for (const Entry& entry : healthy.entries) {
    const auto found = suspect_entries.find(entry.id);
    if (found == suspect_entries.end()) {
      if (suspect.complete) fail_missing(suspect, entry.id, healthy);
      continue;
    }
    require_same_form(suspect, entry, *found->second);
    pairs.push_back({&healthy, &suspect, &entry, found->second, {}});
  }
  if (!healthy.complete) return;
  for (const auto& [id, entry] : suspect_entries) {
    if (!healthy_entries.contains(id)) fail_missing(healthy, id, suspect);
  }
}

}  // namespace

std::vector<RecordedPair> pair_recorded(const Trace& healthy, const Trace& suspect, int threads) {
  require_same_mesh(healthy, suspect);
  std::vector<RecordedPair> pairs;
  for (std::int32_t rank = 0; rank < healthy.world_size; ++rank) {
    pair_rank(only_rank(healthy, rank), only_rank(suspect, rank), pairs);
  }
  if (pairs.empty()) {
    throw InputError(fmt::format("{} and {}: no tensor in common; expected two runs of one program",
                                 directory_of(healthy), directory_of(suspect)));
  }
  parallel_for(pairs.size(), threads, [&](std::size_t i) { compare_bits(pairs[i]); });
  return pairs;
}

}  // namespace ttrace
