#include "judge/shared_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "align/recorded_bits.h"
#include "base/count_of.h"
#include "base/describe.h"
#include "judge/later_sums.h"
#include "judge/right_elsewhere.h"
#include "judge/right_totals.h"

namespace ttrace {
namespace {

// What was handed to modules in a micro-batch.
using Handed = std::tuple<std::int32_t, std::int32_t, Shape, std::uint64_t>;

std::set<std::int32_t> holders_of(const LogicalTensor& tensor) {
  std::set<std::int32_t> ranks;
  for (const Piece& piece : tensor.pieces()) ranks.insert(piece.rank);
  return ranks;
}

// The outputs that have an input's bytes in the reference.
struct Made {
  std::vector<TensorId> outputs;
  bool is_elsewhere = false;  // the bytes are the inputs of other ranks, too
};

std::map<TensorId, Made> outputs_behind_inputs(std::span<const TensorPair> pairs) {
  std::map<Handed, std::vector<const TensorPair*>> handed;
  std::map<Handed, std::vector<TensorId>> made;
  for (const TensorPair& pair : pairs) {
    const TensorId& id = pair.reference->id;
    if ((id.kind != Kind::kInput && id.kind != Kind::kOutput) || id.microbatch < 0) continue;
    const std::vector<Piece> pieces = pair.reference->pieces();
    if (pieces.empty() || pieces[0].entry->shape != pair.reference->shape) continue;
    const Handed what = {id.iteration, id.microbatch, pair.reference->shape, pieces[0].entry->checksum};
    if (id.kind == Kind::kInput) {
      handed[what].push_back(&pair);
    } else {
      made[what].push_back(pair.candidate->id);
    }
  }
  std::map<TensorId, Made> inputs;
  for (const auto& [what, to] : handed) {
    std::set<std::set<std::int32_t>> holders;
    for (const TensorPair* pair : to) holders.insert(holders_of(*pair->candidate));
    for (const TensorPair* pair : to) inputs[pair->candidate->id] = {made[what], holders.size() > 1};
  }
  return inputs;
}

// What an input's gradient has to do with that of an output of the same bytes in the reference.
class HandedOn {
 public:
  HandedOn(const TensorId& gradient, const TensorId& output, const PairsById& pairs)
      : of_input_(pair_of(gradient, pairs)),
        of_output_(pair_of(output.with_kind(Kind::kGradOutput), pairs)),
        input_(pair_of(gradient.with_kind(Kind::kInput), pairs)),
        output_(pair_of(output, pairs)) {}

  // True where the input's gradient is that of the output, with all that others add to it, and ranks hand on a tensor
  // that they have made of it, such as one that holds all ranks' parts.
  bool is_made_anew() const {
    return is_whole_gradient() && !have_same_recorded_bits(*input_->candidate, *output_->candidate);
  }

  // True where it is, and ranks send the output to others: what these send back is their part of its gradient.
  bool is_sent() const {
    if (!is_whole_gradient()) return false;
    const std::set<std::int32_t> senders = holders_of(*output_->candidate), given = holders_of(*input_->candidate);
    return std::none_of(given.begin(), given.end(), [&](std::int32_t rank) { return senders.contains(rank); });
  }

 private:
  static const TensorPair* pair_of(const TensorId& id, const PairsById& pairs) {
    const auto found = pairs.find(id);
    return found == pairs.end() ? nullptr : found->second;
  }

  bool is_whole_gradient() const {
    return of_input_ && of_output_ && input_ && output_ &&
           have_same_recorded_bits(*of_input_->reference, *of_output_->reference);
  }

  const TensorPair *of_input_, *of_output_, *input_, *output_;
};

// The gradients of outputs that pass: what is handed on has the sum of all gradients there.
std::set<TensorId> right_gradients_of_outputs(const std::vector<Finding>& findings) {
  std::set<TensorId> right;
  for (const Finding& finding : findings) {
    if (finding.id.kind == Kind::kGradOutput && finding.verdict == Verdict::kPass) right.insert(finding.id);
  }
  return right;
}

bool is_wrong_gradient_of_input(const Finding& finding) {
  return finding.id.kind == Kind::kGradInput && finding.verdict == Verdict::kFail &&
         finding.reason == Reason::kExceedsTolerance;
}

// True where the candidate's is the reference's times one number, zero included, and no part of a sum is lacking.
bool is_multiple(const Finding& finding) {
  constexpr double kMostOther = 0.05;  // of the candidate's norm
  const Difference& difference = *finding.difference;
  const double along = 1 + difference.scale_err(), square = difference.candidate_square / difference.reference_square;
  return square - along * along <= kMostOther * kMostOther * square;
}

}  // namespace

void set_shared_gradients_aside(std::span<const TensorPair> pairs, std::vector<Finding>& findings,
                                std::vector<std::string>& notes) {
  if (std::none_of(findings.begin(), findings.end(), is_wrong_gradient_of_input)) return;
  // What a later iteration does wrong says nothing of those before it.
  const std::int32_t end = end_of_right_training(findings);
  const std::map<TensorId, Made> inputs = outputs_behind_inputs(pairs);
  const PairsById pairs_by_id = index_pairs(pairs);
  const std::set<TensorId> right = right_gradients_of_outputs(findings);
  const RightTotals totals(pairs_by_id, findings);
  const RightElsewhere right_elsewhere(findings);
  // What ranks hand on is a copy for themselves, to which a part comes back.
  const auto is_total_right = [&](const Finding& finding) {
    return !is_multiple(finding) && totals.contains(finding.id);
  };
  const auto is_sum_right = [&](const TensorId& made) { return right.contains(made.with_kind(Kind::kGradOutput)); };
  std::int64_t count = 0;
  std::string first;
  for (Finding& finding : findings) {
    if (!is_wrong_gradient_of_input(finding) || right_elsewhere.contains(finding.id)) continue;
    const auto input = inputs.find(finding.id.with_kind(Kind::kInput));
    if (input == inputs.end()) continue;
    const Made& made = input->second;
    const bool is_behind_right = finding.id.iteration < end;
    const bool came_together = !is_multiple(finding) && totals.contains_output(finding.id);
    const bool is_right = came_together || (made.is_elsewhere ? is_behind_right || is_total_right(finding)
                                                              : is_behind_right && is_total_right(finding));
    const bool is_set_aside = is_right || std::ranges::any_of(made.outputs, [&](const TensorId& output) {
                                if (!is_sum_right(output)) return false;
                                const HandedOn handed(finding.id, output, pairs_by_id);
                                const bool is_anew = !is_multiple(finding) && handed.is_made_anew();
                                return made.is_elsewhere || is_anew || handed.is_sent();
                              });
    if (!is_set_aside) continue;
    if (count++ == 0) first = to_string(finding.id);
    finding.verdict = Verdict::kUntrusted;
    finding.reason = Reason::kNotCheckable;
  }
  if (count == 0) return;
  notes.push_back(fmt::format(
      "{} of gradients of inputs, the first {}: the reference hands one tensor to several modules, whose gradients add "
      "up in it, and here ranks have a copy each, or one that is made of it; their sum, or what steps take and make, "
      "is right, and these were not "
      "compared",
      count_of(count, "tensor"), first));
}

}  // namespace ttrace
