#include "identify/model_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "base/describe.h"
#include "base/renumbered.h"
#include "identify/chunk_names.h"

namespace ttrace {
namespace {

// The model of the reference has the names of its parameters, or also what these begin with.
enum class Likeness : std::uint8_t { kNone, kNames, kBytes };

Likeness likeness_of(const ChunkNames& candidate, const ChunkNames& reference) {
  CountedParameters counted;
  for (const auto& [path, values] : candidate.parameters) {
    const auto trusted = reference.parameters.find(path);
    counted.add(values, trusted == reference.parameters.end() ? nullptr : &trusted->second);
  }
  if (counted.inside == 0 || !counted.is_enough()) return Likeness::kNone;
  return counted.equal > 0 ? Likeness::kBytes : Likeness::kNames;
}

// The number of the one model of the reference that this may be, `own` first; nothing where there is none, or several.
// One that has its bytes comes before all that have only its names.
std::optional<std::int32_t> number_of(std::int32_t own, const ChunkNames& candidate, const NamesByChunk& reference) {
  std::map<Likeness, std::vector<std::int32_t>> found;
  for (const auto& [number, names] : reference) found[likeness_of(candidate, names)].push_back(number);
  const std::vector<std::int32_t>& best = found[found.contains(Likeness::kBytes) ? Likeness::kBytes : Likeness::kNames];
  if (std::ranges::find(best, own) != best.end()) return own;
  return best.size() == 1 ? std::optional(best.front()) : std::nullopt;
}

// By the rank's own numbers; empty where these stay.
std::map<std::int32_t, std::int32_t> numbers_of(const RankTrace& rank, const NamesByChunk& reference) {
  std::map<std::int32_t, std::int32_t> numbers;
  std::set<std::int32_t> taken;
  bool are_others = false;
  for (const auto& [own, names] : names_by_chunk(rank)) {
    const std::optional<std::int32_t> number = number_of(own, names, reference);
    if (!number || !taken.insert(*number).second) return {};
    are_others |= *number != own;
    numbers.emplace(own, *number);
  }
  return are_others ? numbers : std::map<std::int32_t, std::int32_t>{};
}

bool runs_several_models(const RankTrace& rank) {
  return std::ranges::any_of(rank.entries, [](const Entry& entry) { return entry.id.chunk != 0; });
}

}  // namespace

std::vector<std::string> number_models_as_reference(const Trace& reference, Trace& candidate) {
  if (!std::ranges::any_of(reference.ranks, runs_several_models)) return {};  // names of a large trace are many
  const NamesByChunk trusted = names_by_chunk(reference);
  std::vector<std::int32_t> renumbered;
  for (RankTrace& rank : candidate.ranks) {
    const std::map<std::int32_t, std::int32_t> numbers = numbers_of(rank, trusted);
    if (numbers.empty()) continue;
    renumber_chunks(rank, [&](std::int32_t chunk) {
      const auto found = numbers.find(chunk);
      return found == numbers.end() ? chunk : found->second;
    });
    renumbered.push_back(rank.rank);
  }
  if (renumbered.empty()) return {};
  return {
      fmt::format("candidate: {}: the models are those of the reference that have their parameters' names and bytes, "
                  "whatever order they are called in",
                  describe_ranks(renumbered))};
}

}  // namespace ttrace
