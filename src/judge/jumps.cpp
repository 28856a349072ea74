#include "judge/jumps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/count_of.h"
#include "base/describe.h"
#include "compare/few_elements.h"
#include "merge/values.h"
#include "numeric/dtype.h"

namespace ttrace {
namespace {

constexpr double kRoundings = 64;  // steps of the dtype that an activation may be off by

bool may_jump(const Finding& finding) {
  return finding.verdict == Verdict::kFail && finding.reason == Reason::kExceedsTolerance && finding.allowed &&
         finding.difference && !finding.by_override;
}

struct Jump {
  TensorId id;
  double rel_err = 0;
  double reference = 0, candidate = 0;  // what is zero but for rounding, where the gradient differs most
  std::optional<TensorId> less;         // what the activation is equal to, where it is not zero itself
};

// Whether both sides recorded it, as an activation of that shape that is right.
bool is_readable(const TensorPair& pair, const Shape& shape, const std::set<TensorId>& wrong) {
  const LogicalTensor& reference = *pair.reference;
  return reference.shape == shape && is_floating(reference.dtype) && has_whole_values(reference) &&
         has_whole_values(*pair.candidate) && !wrong.contains(reference.id);
}

int sign_of(double value) { return (value > 0) - (value < 0); }

// The values of an activation, or of a difference of two, on both sides.
struct Sides {
  Values reference, candidate;

  explicit Sides(const TensorPair& pair)
      : reference(values_of(*pair.reference)), candidate(values_of(*pair.candidate)) {}

  void subtract(const Sides& other) {
    std::transform(reference.begin(), reference.end(), other.reference.begin(), reference.begin(), std::minus());
    std::transform(candidate.begin(), candidate.end(), other.candidate.begin(), candidate.begin(), std::minus());
  }

  // Whether rounding moves all of these elements over zero, or onto it, where an absolute value has the slope 0; they are
  // few of those that are so near.
  bool cross_zero_at(const std::vector<std::size_t>& elements, Dtype dtype) const {
    const double typical = norm_of(reference) / std::sqrt(static_cast<double>(reference.size()));
    const double most = kRoundings * epsilon_of(dtype) * typical;
    return std::all_of(elements.begin(), elements.end(), [&](std::size_t i) {
      return sign_of(reference[i]) != sign_of(candidate[i]) &&
             std::max(std::abs(reference[i]), std::abs(candidate[i])) <= most;
    });
  }
};

// Returns nothing where the gradient is wrong elsewhere than where the activation is zero, or equal to another one of the
// micro-batch, as what an absolute difference is taken of.
std::optional<Jump> find_jump(const Finding& finding, const PairsById& pairs, const std::set<TensorId>& wrong) {
  constexpr int kMostOthers = 256;
  const auto gradient = pairs.find(finding.id), activation = pairs.find(finding.id.with_kind(Kind::kOutput));
  if (gradient == pairs.end() || activation == pairs.end()) return std::nullopt;
  const Shape& shape = gradient->second->reference->shape;
  if (!is_readable(*activation->second, shape, wrong)) return std::nullopt;
  const auto elements = few_elements_that_differ(*gradient->second, *finding.allowed);
  if (!elements || elements->empty()) return std::nullopt;
  const std::size_t worst = elements->front();
  const Dtype dtype = activation->second->reference->dtype;
  const auto jump_at = [&](const Sides& sides, std::optional<TensorId> less) {
    return Jump{finding.id, finding.difference->rel_err(), sides.reference[worst], sides.candidate[worst],
                std::move(less)};
  };
  const Sides own(*activation->second);
  if (own.cross_zero_at(*elements, dtype)) return jump_at(own, std::nullopt);
  int tried = 0;
  for (const auto& [id, pair] : pairs) {
    const bool is_beside = id.iteration == finding.id.iteration && id.microbatch == finding.id.microbatch &&
                           (id.kind == Kind::kOutput || id.kind == Kind::kInput);
    if (!is_beside || id == activation->first || !is_readable(*pair, shape, wrong)) continue;
    if (++tried > kMostOthers) break;
    Sides difference = own;
    difference.subtract(Sides(*pair));
    if (difference.cross_zero_at(*elements, dtype)) return jump_at(difference, id);
  }
  return std::nullopt;
}

// How far the jumps so far reach, in the order of execution.
class Jumps {
 public:
  void add(const Jump& jump) {
    double& of_batch = by_batch_[{jump.id.iteration, jump.id.microbatch}];
    of_batch = std::max(of_batch, jump.rel_err);
    double& of_iteration = by_iteration_[jump.id.iteration];
    of_iteration = std::max(of_iteration, jump.rel_err);
  }

  // 0 where none is before it. Steps come behind all micro-batches.
  double before(const TensorId& id) const {
    const auto of_batch = by_batch_.find({id.iteration, id.microbatch});
    double largest = of_batch == by_batch_.end() ? 0 : of_batch->second;
    for (const auto& [iteration, jump] : by_iteration_) {
      const bool is_before = iteration < id.iteration || (iteration == id.iteration && id.microbatch == kNoMicrobatch);
      if (is_before) largest = std::max(largest, jump);
    }
    return largest;
  }

 private:
  std::map<std::pair<std::int32_t, std::int32_t>, double> by_batch_;  // by iteration and micro-batch
  std::map<std::int32_t, double> by_iteration_;
};

void pass_as_behind(Finding& finding, const std::string& why) {
  finding.verdict = Verdict::kPass;
  finding.reason = Reason::kNone;
  finding.message = fmt::format("{}: rel_err {:.3g}, {}", to_string(finding.id), finding.difference->rel_err(), why);
  finding.ranks.clear();
}

// An optimizer's step has jumps of its own: what the gradients of the run give is right where these are.
bool is_given_by_gradients(const TensorId& id, const StepVerdicts& steps) {
  return (id.kind == Kind::kParamDelta || id.kind == Kind::kParamAfter) && steps.proved.contains(id);
}

std::string beginning_of_note(const TensorId& id) { return to_string(id) + " jumps by "; }

}  // namespace

bool is_noted_jump(const TensorId& id, const std::vector<std::string>& notes) {
  return std::ranges::any_of(notes, [&](const std::string& note) { return note.starts_with(beginning_of_note(id)); });
}

void pass_behind_jumps(std::span<const TensorPair> pairs, const StepVerdicts& steps, std::vector<Finding>& findings,
                       std::vector<std::string>& notes) {
  const auto is_wrong_gradient = [](const Finding& each) {
    return phase_of(each.id) == Phase::kBackward && may_jump(each);
  };
  if (std::none_of(findings.begin(), findings.end(), is_wrong_gradient)) return;
  const PairsById pairs_by_id = index_pairs(pairs);
  std::set<TensorId> wrong;
  std::vector<Finding*> in_order;
  for (Finding& finding : findings) {
    if (finding.verdict != Verdict::kPass) wrong.insert(finding.id);
    if (may_jump(finding)) in_order.push_back(&finding);
  }
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const Finding* a, const Finding* b) { return executes_before(*a, *b); });
  Jumps jumps;
  std::optional<Jump> first;
  std::int64_t behind = 0, at_zero = 0;
  for (Finding* const finding : in_order) {
    const double reach = kReachOfJump * jumps.before(finding->id);
    const bool is_backward = phase_of(finding->id) == Phase::kBackward;
    const std::optional<Jump> jump = is_backward ? find_jump(*finding, pairs_by_id, wrong) : std::nullopt;
    if (jump && (!first || (at_zero == 0 && jump->rel_err <= kLargestJump))) first = jump;
    if (jump && jump->rel_err <= kLargestJump) {
      ++at_zero;
      jumps.add(*jump);
      pass_as_behind(*finding, "in a few elements, where the activation is zero");
    } else if (reach > 0 && (finding->difference->rel_err() <= reach || is_given_by_gradients(finding->id, steps))) {
      ++behind;
      pass_as_behind(*finding, fmt::format("allowed {:.3g} behind a gradient that jumps", reach));
      finding->allowed = reach;
    }
  }
  if (!first) return;
  const std::string what = first->less ? "its activation less " + to_string(*first->less) : "its activation";
  notes.push_back(fmt::format(
      "{}{:.3g} where {} is zero but for rounding: {:.3g}, and {:.3g} in the candidate; {}",
      beginning_of_note(first->id), first->rel_err, what, first->reference, first->candidate,
      at_zero == 0
          ? std::string("that is more than 0.01, behind which mistakes would hide: what follows from it is "
                        "wrong nevertheless; look at another iteration (--iterations)")
          : fmt::format("{} behind such were allowed {:g} times as much", count_of(behind, "tensor"), kReachOfJump)));
}

}  // namespace ttrace
