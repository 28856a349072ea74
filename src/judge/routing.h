// Finds tokens that the two sides sent to different experts. Where two experts nearly tie, rounding decides between
// them in a correct program too; such a token is reported in a note, and the experts' tensors are compared without it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/alignment.h"
#include "base/finding.h"
#include "compare/compare.h"
#include "tolerance/tolerance.h"

namespace ttrace {

struct Reroute {
  // Names the router's output that it chooses by; where none was recorded, a tensor that the router filled.
  TensorId logits;
  std::int64_t token = 0;                                          // its dimensions but the last, counted row-major
  std::vector<std::int64_t> reference_experts, candidate_experts;  // experts that the other side did not choose
  // Says how far each of the reference's logits of this token must move, relative to their norm, before both choices
  // are the reference's router's. Where it chooses among all experts, half of what separates the highest and the lowest
  // of those that were exchanged, whichever side chose which; among groups of experts, what `move_to_choose`
  // (src/judge/group_choice.h) says of both choices. A candidate that chose higher ones did not choose by the same
  // rule. Infinity where no move explains the choice.
  double shift = 0;
  std::uint64_t order = 0;               // the logits' position in the reference's execution
  std::int64_t tokens = 0, experts = 0;  // numbers of tokens in the micro-batch, and of the router's experts
};

// Compares, for every tensor of routed tokens, which rows (tokens) the two sides hold.
std::vector<Reroute> find_reroutes(const Alignment& reference, const Alignment& candidate);

// Says why tokens were re-routed. A tie is near where the shift is at most what the logits are allowed to differ by;
// without a tolerance only an exact tie counts. Other experts give a token other values, so that a later router of the
// same micro-batch may send it anywhere: it `follows` from the tie.
struct ReroutesByCause {
  std::vector<Reroute> near_ties, following;
  std::vector<Reroute> others;  // wrong
};
ReroutesByCause explain_reroutes(std::span<const Reroute> reroutes, const ToleranceFile* tolerance);

// Adds notes about the tokens that a near tie re-routed, and returns one finding for each router and micro-batch that
// re-routed others.
std::vector<Finding> judge_reroutes(const ReroutesByCause& reroutes, std::vector<std::string>& notes);

// Says of each pair whether a re-routed token may have changed it: whether it is computed after the router's choice in
// the same micro-batch, or from all micro-batches of the iteration, or in a later iteration.
std::vector<bool> find_changed_pairs(std::span<const TensorPair> pairs, std::span<const Reroute> reroutes);

// Makes a failure untrusted whose error the re-routed tokens may explain. If k of the n tokens that a tensor is
// computed from are replaced by others, its relative error is up to sqrt(2 k / n); n is an expert's mean number of
// tokens. Of a tensor with a row for each token and none for these, `without_rerouted`, n is the number of all tokens:
// attention lets them change the others, and by no more than they are changed. `ties` are near ties, and what follows
// from them.
void downgrade_if_rerouted(Finding& finding, std::span<const Reroute> ties, bool without_rerouted);

// The token of a row of a tensor of routed tokens.
std::int64_t token_of(const LogicalTensor& tensor, std::int64_t row);

// Returns `tensor` with these of its rows alone, in their order. The tensor must hold all of them.
LogicalTensor keep_rows(const LogicalTensor& tensor, const std::vector<std::int64_t>& rows);

}  // namespace ttrace
