// Which of the reference's micro-batches the ranks run, by the bytes of what the model was given.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "identify/census.h"
#include "identify/ranks.h"

namespace ttrace {

struct Microbatches;

// The reference's micro-batches that the coordinates ran in an iteration; none where nothing tells.
struct ToldNumbers {
  std::vector<std::vector<std::int32_t>> numbers;  // by coordinate
  std::set<std::int32_t> sliced;                   // of which each coordinate ran a slice
};

// By iteration; empty where nothing tells some of them. `microbatches` has its axes and counts.
std::map<std::int32_t, ToldNumbers> told_numbers(const RankTable& table, const Census& census,
                                                 const Microbatches& microbatches, const ModelLayout& layout);

}  // namespace ttrace
