// Tells what a router chose experts by, and how near a choice was to another one.
#pragma once

#include <cstdint>
#include <set>

#include "base/alignment.h"
#include "judge/group_choice.h"

namespace ttrace {

using ChosenExperts = std::set<std::int64_t>;

// The experts of one token.
struct Choice {
  ChosenExperts reference, candidate;
};

// The experts that only one side chose.
Choice exchanged_in(const Choice& choice);

// A call of the reference's router, and what it recorded of its choice.
struct Router {
  const LogicalTensor* scores = nullptr;  // what it chooses by, [.., experts]; null where that was not recorded
  const LogicalTensor* groups = nullptr;  // int64 [3], as in RouterRule; null where it chooses among all experts
};

// A router's scores are a row of them for each token: its dimensions but the last, counted row-major.
bool has_rows(const LogicalTensor& scores);
std::int64_t count_rows(const LogicalTensor& scores);

// Computes `Reroute::shift`.
double required_shift(const Router& router, std::int64_t token, const Choice& choice);

// The groups that the router chooses among; one of all experts where it has recorded none that make sense.
ExpertGroups groups_of(const Router& router);

}  // namespace ttrace
