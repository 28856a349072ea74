// Tokens that the two sides sent to different experts. Where the router's choice was a near tie, rounding decides,
// in a correct program too; such a token is reported and compared no further.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ttrace/align/shard_mapping.h"
#include "ttrace/compare/compare.h"
#include "ttrace/finding.h"
#include "ttrace/tolerance/tolerance.h"

namespace ttrace {

struct Reroute {
  TensorId logits;         // canonical, of the router's output; its name is the pattern where there is no such tensor
  std::int64_t token = 0;  // row of the logits
  std::vector<std::int64_t> reference_experts, candidate_experts;  // those that the other side did not choose
  // How much each of the reference's logits of this token must move, relative to their norm, for the candidate's
  // choice to be the best: half of what separates the two. Infinity where no move explains it.
  double shift = 0;
  std::uint64_t order = 0;               // of the logits
  std::int64_t tokens = 0, experts = 0;  // in the micro-batch; of the router
};

// Compares which rows the two hold of every tensor of routed tokens.
std::vector<Reroute> find_reroutes(const Alignment& reference, const Alignment& candidate);

// A token whose shift is at most what the logits are allowed to differ by was re-routed by a near tie: a note. The
// others make one finding for each router and micro-batch.
std::vector<Finding> judge_reroutes(std::span<const Reroute> reroutes, const ToleranceFile* tolerance,
                                    std::vector<std::string>& notes);

// For each pair, whether some re-routed token may have changed it: it is computed after the router's choice in the same
// micro-batch, or from all micro-batches of the iteration.
std::vector<bool> find_changed(std::span<const TensorPair> pairs, std::span<const Reroute> reroutes);

// Of a tensor that is computed after a near tie and from the re-routed tokens among others, the error that these may
// explain: k of n tokens that are other ones altogether make a relative error of up to sqrt(2 k / n), n being the
// tokens of one expert on average. A failure of no more than that becomes untrusted. `ties` are near ties.
void excuse(Finding& finding, std::span<const Reroute> ties);

// Whether a near tie explains it.
bool is_near_tie(const Reroute& reroute, const ToleranceFile* tolerance);

// The tensor of these of its rows alone, in their order; all must be held.
LogicalTensor keep_rows(const LogicalTensor& tensor, const std::vector<std::int64_t>& rows);

}  // namespace ttrace
