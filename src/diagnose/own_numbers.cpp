#include "diagnose/own_numbers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/lookup.h"
#include "base/random_draws.h"
#include "base/tensor_name.h"
#include "diagnose/own_buffers.h"
#include "tolerance/family.h"

namespace ttrace {
namespace {

// Classes of modules that draw random numbers in training, by the last component of their names.
constexpr auto kDrawing =
    std::to_array<std::string_view>({"Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout",
                                     "FeatureAlphaDropout", "DropPath", "StochasticDepth", "RReLU"});

bool is_of_drawing_class(std::string_view module_class) {
  return std::find(kDrawing.begin(), kDrawing.end(), last_component(module_class)) != kDrawing.end();
}

// What the ranks that hold a tensor say of the draws before it.
struct Drawn {
  bool is_known = false;
  bool drew = false;  // on some rank
  bool is_split = false;
  std::map<std::int32_t, std::uint64_t> states;  // by rank; of those that are known

  std::set<std::uint64_t> different_states() const {
    std::set<std::uint64_t> all;
    for (const auto& [rank, state] : states) all.insert(state);
    return all;
  }
};

Drawn drawn_before(const LogicalTensor* tensor, const Trace* trace) {
  Drawn drawn;
  if (tensor == nullptr || trace == nullptr) return drawn;
  for (const Piece& piece : tensor->pieces()) {
    const auto rank = std::find_if(trace->ranks.begin(), trace->ranks.end(),
                                   [&](const RankTrace& each) { return each.rank == piece.rank && each.draws; });
    if (rank == trace->ranks.end() || piece.entry == nullptr) return {};
    drawn.is_known = true;
    drawn.is_split = drawn.is_split || piece.entry->shape.get() != tensor->shape;
    if (!rank->draws->holds(piece.entry->id)) continue;
    drawn.drew = true;
    if (const auto state = rank->draws->state_before(piece.entry->id)) drawn.states[piece.rank] = *state;
  }
  return drawn;
}

// What recomputed tensors are compared with is the reference's forward, where that recomputes nothing.
const LogicalTensor* find_compared(const Alignment& alignment, TensorId id) {
  const LogicalTensor* tensor = find_tensor(alignment, id);
  if (tensor != nullptr || id.pass == Pass::kForward) return tensor;
  id.pass = Pass::kForward;
  return find_tensor(alignment, id);
}

// The draws before a wrong tensor, on both sides.
struct Draws {
  Drawn candidate, reference;

  bool are_known() const { return candidate.is_known && reference.is_known; }
  bool do_both() const { return are_known() && candidate.drew && reference.drew; }
  bool is_same_state() const {
    const std::set<std::uint64_t> states = candidate.different_states();
    return states.size() == 1 && states == reference.different_states();
  }
};

Draws draws_before(const TensorId& id, const Evidence& evidence) {
  return {drawn_before(find_tensor(evidence.candidate, id), evidence.candidate_trace),
          drawn_before(find_compared(evidence.reference, id), evidence.reference_trace)};
}

bool may_be_drawn(const Finding& finding) {
  return (finding.id.kind == Kind::kOutput || finding.id.kind == Kind::kInput) &&
         (finding.reason == Reason::kExceedsTolerance || finding.reason == Reason::kIntegerDiffers ||
          (finding.reason == Reason::kReplicasDisagree && finding.guessed));
}

bool is_drawn(const Finding& finding, const LogicalTensor& tensor, const Evidence& evidence) {
  const Draws draws = draws_before(finding.id, evidence);
  if (!draws.are_known()) {
    return finding.id.kind == Kind::kOutput && is_of_drawing_class(tensor.module_class.get());
  }
  const bool is_configured_otherwise =
      evidence.configured != nullptr && !configured_otherwise(finding.id, *evidence.configured).empty();
  const bool must_be_equal = draws.is_same_state() && !draws.candidate.is_split && !draws.reference.is_split;
  return draws.do_both() && !must_be_equal && !is_configured_otherwise && !is_redrawn(finding.id, evidence);
}

// The first tensor before which the generators of some rank were in another state than the reference's.
const LogicalTensor* first_drawn_otherwise(const Evidence& evidence) {
  const LogicalTensor* first = nullptr;
  for (const auto& [id, tensor] : evidence.candidate.tensors) {
    if ((id.kind != Kind::kOutput && id.kind != Kind::kInput) || id.pass != Pass::kForward) continue;
    if (first != nullptr && first->order <= tensor.order) continue;
    const Draws draws = draws_before(id, evidence);
    if (draws.do_both() && !draws.candidate.states.empty() && !draws.is_same_state()) first = &tensor;
  }
  return first;
}

std::string describe_states(const TensorId& id, const Draws& draws, const Evidence& evidence) {
  if (draws.candidate.states.empty() || draws.reference.states.empty() || draws.is_same_state()) return "";
  const LogicalTensor* first = first_drawn_otherwise(evidence);
  if (first == nullptr || first->id == id) return "the state of the generators is another before it";
  return fmt::format("the states of the generators are others since {}", to_string(first->id));
}

std::string describe_drawn(const TensorId& id, const LogicalTensor& tensor, const Evidence& evidence) {
  const Draws draws = draws_before(id, evidence);
  const std::string states = describe_states(id, draws, evidence);
  const std::string who = id.kind == Kind::kInput ? "what calls it draws random numbers before"
                                                  : fmt::format("{} draws random numbers",
                                                                printable(last_component(tensor.module_class.get())));
  return fmt::format(
      "{}, other ones than in the reference{}, and what follows from it says nothing; to compare, draw none (p = 0 in "
      "both runs), or on each rank the reference's numbers for the rank's samples",
      who, states.empty() ? "" : fmt::format(" ({})", states));
}

}  // namespace

bool is_redrawn(const TensorId& id, const Evidence& evidence) {
  if (id.pass != Pass::kRecompute) return false;
  TensorId first = id;
  first.pass = Pass::kForward;
  const Drawn recomputed = drawn_before(find_tensor(evidence.candidate, id), evidence.candidate_trace);
  const Drawn forward = drawn_before(find_tensor(evidence.candidate, first), evidence.candidate_trace);
  return std::any_of(recomputed.states.begin(), recomputed.states.end(), [&](const auto& item) {
    const auto found = forward.states.find(item.first);
    return found != forward.states.end() && found->second != item.second;
  });
}

double largest_error_of(const Finding& finding) {
  return std::max(finding.difference->rel_err(), finding.difference->replica_rel_err());
}

bool begins_by_rounding(const Finding& finding, const Evidence& evidence) {
  const LogicalTensor* tensor = find_tensor(evidence.candidate, finding.id);
  const bool is_beginning = finding.id.kind == Kind::kParam && finding.verdict == Verdict::kFail && finding.difference;
  const bool is_value = finding.reason == Reason::kExceedsTolerance || finding.reason == Reason::kReplicasDisagree;
  return is_beginning && is_value && tensor != nullptr &&
         finding.difference->differing >= finding.difference->elements / 2 &&
         largest_error_of(finding) <= rounding_of_beginning(tensor->dtype);
}

// True where the candidate's module changes its running statistics and the reference's does not: that one takes these, and
// not the batch's.
bool changes_kept_statistics(const TensorId& output, const Evidence& evidence) {
  TensorId mean = output.with_kind(Kind::kBufferAfter);
  mean.microbatch = kNoMicrobatch;
  mean.name = fmt::format("{}.running_mean", TensorName(output.name.get()).path);
  return is_changed_in_candidate_alone(mean, evidence);
}

std::string describe_own_numbers(const Finding& finding, const Evidence& evidence) {
  if (begins_by_rounding(finding, evidence)) {
    return fmt::format(
        "it begins with the reference's value but for rounding ({:.2g}), as what a program fits to its data does, by "
        "least squares or by clustering, whose sums may round otherwise in each process; what follows may be off by "
        "that. To compare, round it, or fit it once and load it in both runs",
        largest_error_of(finding));
  }
  const LogicalTensor* tensor = find_tensor(evidence.candidate, finding.id);
  if (tensor == nullptr || !may_be_drawn(finding)) return {};
  if (is_drawn(finding, *tensor, evidence)) return describe_drawn(finding.id, *tensor, evidence);
  const std::string_view module_class = tensor->module_class.get();
  const bool is_in_mode = evidence.configured == nullptr || !is_in_other_mode(finding.id, *evidence.configured);
  if (finding.id.kind == Kind::kOutput && evidence.candidate.slices && takes_batch_statistics(module_class) &&
      is_in_mode && !changes_kept_statistics(finding.id, evidence)) {
    return fmt::format(
        "{} takes the statistics of each rank's own samples, and in the reference of the whole batch; to compare, use "
        "SyncBatchNorm, or its running statistics (eval()), or run each rank's samples as a micro-batch of the "
        "reference",
        printable(last_component(module_class)));
  }
  return {};
}

std::string drawn_otherwise(const Finding& finding, const Evidence& evidence) {
  const TensorId& id = finding.id;
  if (id.kind != Kind::kOutput && id.kind != Kind::kInput) return {};
  const Draws draws = draws_before(id, evidence);
  if (!draws.are_known()) return {};
  if (draws.candidate.drew != draws.reference.drew) {
    return draws.candidate.drew ? "random numbers are drawn before it, and in the reference none"
                                : "in the reference random numbers are drawn before it, and here none";
  }
  if (is_redrawn(id, evidence)) {
    return "it is recomputed with other random numbers than its forward drew: the state of the generators is another";
  }
  if (finding.reason == Reason::kReplicasDisagree && draws.candidate.different_states().size() > 1) {
    return "the ranks whose copies must be equal draw other random numbers: their generators are in other states";
  }
  const std::string states = describe_states(id, draws, evidence);
  return states.empty() ? states : "it comes after other random numbers than in the reference: " + states;
}

}  // namespace ttrace
