// The roles that the entries of a trace have. A large trace has millions of entries and thousands of names: what follows
// from a name and its place in the model is worked out once for each role.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "identify/ranks.h"

namespace ttrace {

// The first entry that has the role. Others differ from it in rank, iteration and micro-batch, in what they hold, and in
// the mapping that the program may have recorded; not in name, kind, pass and model chunk, nor in their rank's
// coordinates on the axes of the pipeline's stages and of the experts, nor in whether a mapping says how the axes split
// them.
struct Role {
  const PresentRank* rank = nullptr;
  const Entry* entry = nullptr;
};

// Neighbouring entries of one rank.
struct RankEntries {
  const PresentRank* rank = nullptr;
  std::span<const Entry> entries;
  std::int32_t last_chunk = 0;                             // the highest of theirs
  std::map<std::int32_t, std::int64_t> microbatches = {};  // by iteration, one more than the last that they are of
};

// A part of all entries, by rank and in order of execution, for one thread to go through.
struct Section {
  std::vector<RankEntries> ranks;
  std::vector<std::uint32_t> roles;  // of each entry: an index into the census's
};

struct Census {
  std::vector<Role> roles;  // in the order of their first entries
  std::vector<Section> sections;
};

// Calls `visit(rank, entry)` for all entries of the roles for which `is_wanted(role)`, in order. Asks once for each role.
template <class Wanted, class Visit>
void for_each_entry(const Census& census, const Wanted& is_wanted, const Visit& visit) {
  std::vector<bool> wanted;
  for (const Role& role : census.roles) wanted.push_back(is_wanted(*role.entry));
  for (const Section& section : census.sections) {
    auto role = section.roles.begin();
    for (const RankEntries& of_rank : section.ranks) {
      for (const Entry& entry : of_rank.entries) {
        if (wanted[*role++]) visit(*of_rank.rank, entry);
      }
    }
  }
}

// True where the recorded mapping says how the axes split the tensor, and annotations do not.
bool is_placed_by_program(const Entry& entry);

// `stage_axis` and `expert_axis` are indexes into the table's axes, -1 where it has no such axis. `table` must outlive the
// census. `threads` as in `parallel_for`.
Census census_of(const RankTable& table, int stage_axis, int expert_axis, int threads);

}  // namespace ttrace
