// Tells which ranks of a healthy run hold copies of one tensor, so that what is on many ranks counts once.
#pragma once

#include <span>
#include <vector>

#include "sdc/pair.h"

namespace ttrace {

// Ranks that hold the same part of a tensor, in order of rank.
using Copies = std::vector<const RecordedPair*>;

// Sorts one tensor's shards, in order of rank, into the parts that they are copies of. A deterministic program's copies
// have the same bits, and so shards are copies where the healthy run's bits are equal, unless the program recorded that
// they are different parts. Shards of zeros may be either: they count as parts.
std::vector<Copies> parts_of(std::span<const RecordedPair* const> shards);

// True where the suspect run's copies do not all have the same bits.
bool disagree(const Copies& copies);

}  // namespace ttrace
