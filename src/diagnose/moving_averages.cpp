// Tests how a moving average of a parameter, which no optimizer updates, follows it. With decay a it becomes
//
//   after = a before + (1 - a) parameter
//
// What it was before is recorded of the iteration before alone, if at all; the two runs have it in common, and so their
// difference tells: taken from the parameter before its step, it is (1 - a) times the step, which is recorded; with another
// decay it is a multiple of how far the reference's is from the parameter.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "base/lookup.h"
#include "base/tensor_name.h"
#include "diagnose/hypothesis.h"

namespace ttrace {
namespace {

// Of a parameter in an iteration of the candidate.
struct Followed {
  std::string name;
  Values before, after;
};

// The parameters that the average may be of: those of its shape, those first whose names end as its does.
std::vector<Followed> find_followed(const Suspect& suspect) {
  const TensorId& id = suspect.candidate.id;
  std::vector<Followed> named, others;
  for (const auto& [other, tensor] : suspect.evidence.candidate.tensors) {
    const bool is_of_iteration = other.kind == Kind::kParamAfter && other.iteration == id.iteration;
    if (!is_of_iteration || other.name == id.name || !is_comparable(tensor, suspect.candidate)) continue;
    const LogicalTensor* before = find_tensor(suspect.evidence.candidate, other.with_kind(Kind::kParam));
    if (before == nullptr || before->shape != tensor.shape) continue;
    const std::string& name = other.name.get();
    const bool is_named = id.name.get().ends_with("." + name) || name.ends_with("." + id.name.get());
    (is_named ? named : others).push_back({name, values_of(*before), values_of(tensor)});
  }
  named.insert(named.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
  return named;
}

Values difference_of(const Values& a, const Values& b) {
  Values difference = a;
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= b[i];
  return difference;
}

// The number that `along` must be multiplied by to give the candidate's error.
double fit_error(const Suspect& suspect, const Values& along) {
  const double square = dot_of(along, along);
  if (square == 0) return 0;
  return dot_of(difference_of(suspect.candidate_values, suspect.reference_values), along) / square;
}

std::optional<Diagnosis> explain_along(const Suspect& suspect, const Values& along, double times,
                                       const std::string& what) {
  Values prediction = suspect.reference_values;
  for (std::size_t i = 0; i < prediction.size(); ++i) prediction[i] += times * along[i];
  return suspect.explained_by(Cause::kOtherAverage, prediction, what);
}

// What the average is multiplied by in the reference, by how it came from that of the iteration before; nothing where that
// is not recorded.
std::optional<double> decay_of_reference(const Suspect& suspect, const Values& after) {
  TensorId id = suspect.reference.id;
  --id.iteration;
  const LogicalTensor* tensor = find_tensor(suspect.evidence.reference, id);
  if (tensor == nullptr || !is_comparable(*tensor, suspect.reference)) return std::nullopt;
  const Values distance = difference_of(values_of(*tensor), after);
  const double square = dot_of(distance, distance);
  if (square == 0) return std::nullopt;
  return dot_of(difference_of(suspect.reference_values, after), distance) / square;
}

// True where some rank has, in the next iteration, what is wrong here.
bool stands_still(const Suspect& suspect) {
  TensorId id = suspect.candidate.id;
  ++id.iteration;
  const LogicalTensor* next = find_tensor(suspect.evidence.candidate, id);
  if (next == nullptr || !is_comparable(*next, suspect.reference)) return false;
  const std::vector<Piece> pieces = next->pieces();
  return std::ranges::any_of(
      pieces, [&](const Piece& piece) { return values_of(*next, piece.replica) == suspect.candidate_values; });
}

// True where the average began as the parameter, and of the step lacks another share than all that it takes of it: then it is
// another decay.
bool lacks_part_of_step(const Suspect& suspect, const Followed& followed, const Values& step, double share) {
  const Values moved = difference_of(suspect.reference_values, followed.before);
  const double square = dot_of(step, step);
  if (square == 0) return false;
  const double taken = dot_of(moved, step) / square;
  Values along = step;
  for (double& value : along) value *= taken;
  const bool began_so = taken > 0 && norm_of(difference_of(moved, along)) <= kLargestShareLeft * norm_of(moved);
  constexpr double kAll = 0.98;
  return began_so && share < kAll * taken;
}

std::optional<Diagnosis> explain_by_parameter(const Suspect& suspect, const Followed& followed) {
  const std::string name = printable(followed.name);
  const Values step = difference_of(followed.after, followed.before);
  const double share = -fit_error(suspect, step);
  if (share > 0 && share <= 1 + kLargestShareLeft && !lacks_part_of_step(suspect, followed, step, share)) {
    const std::string what =
        stands_still(suspect)
            ? fmt::format(
                  "it is not updated: the next iteration leaves it as it is, too, {} as that was before its step", name)
            : fmt::format(
                  "it takes {:.4g} of {} as that was before its step, in place of after it: it is updated before the "
                  "optimizer's step, or one step late",
                  share, name);
    if (auto found = explain_along(suspect, step, -share, what)) {
      found->group = fmt::format("before the step, {:.2g}", share);
      return found;
    }
  }
  const Values distance = difference_of(suspect.reference_values, followed.after);
  const double times = 1 + fit_error(suspect, distance);
  if (!(times >= 0)) return std::nullopt;
  const std::optional<double> decay = decay_of_reference(suspect, followed.after);
  const std::string what =
      decay ? fmt::format("it follows {} by another decay: {:.4g}, the reference's by {:.4g}", name, times * *decay,
                          *decay)
            : fmt::format("it follows {} by another decay: {:.4g} times the reference's", name, times);
  auto found = explain_along(suspect, distance, times - 1, what);
  if (found) found->group = fmt::format("decay, {:.2g} times", times);
  return found;
}

}  // namespace

std::optional<Diagnosis> follows_otherwise(const Suspect& suspect) {
  if (!is_of_other_model(suspect.evidence.reference, suspect.reference.id)) return std::nullopt;
  for (const Followed& followed : find_followed(suspect)) {
    if (auto found = explain_by_parameter(suspect, followed)) return found;
  }
  return std::nullopt;
}

}  // namespace ttrace
