// Why a perturbed run says what a correct distributed run may differ by (TTrace, section 5).
//
// A distributed program computes the same function as the reference in another order: it splits sums,
// adds partial results in other places, rounds in other places. Each step adds a relative error of the
// order of the machine epsilon, and the network carries it on. Bounding that by analysis is hopeless for
// a real model, but the network itself can be asked: multiply its first floating-point activation by
// (1 + epsilon * u), u uniform in [-1, 1), run the *reference* again, and see how far each tensor moves.
// Injected rounding error and real rounding error go through the same layers; where these are smooth,
// both grow alike: with the square root of the depth in forward (theorem 2), and again in backward
// (theorem 3). So per tensor
//
//   response_s = ||X_s - X||_F / ||X||_F         for each perturbed run s
//   estimate   = max over s, micro-batches and iterations, and over the unperturbed rerun
//   allowed    = margin * max(estimate, floor)
//
// The maximum, not a mean: it is a bound that is asked for, and S is small. Micro-batches and iterations
// are pooled, since they are further samples of one random quantity. The rerun measures what the run does
// by itself (atomics, autotuned kernels): a reference that is not reproducible cannot hold a candidate to
// less than its own noise. The floor is there because a perturbation need not reach a tensor at all (a
// gradient that does not depend on the input, the loss when differences cancel), which does not make the
// candidate's rounding of it any smaller.
//
// An optimizer's step is not smooth. Adam's first one is lr * sign(gradient) but for the tiniest gradients:
// where a gradient is close to zero, rounding decides its sign, and that element of param_delta jumps by
// twice its size. A few such elements carry the whole difference, in tensors that a handful of runs cannot
// foresee. What can be measured is how far one element jumps: over all tensors of the kind and all runs,
//
//   jump  = max |x_s[i] - x[i]| / rms(x)
//   floor = jump / sqrt(n)                         n: the tensor's elements
//
// that is, any tensor of the kind may see the largest jump that any of them saw, once; the margin leaves
// room for margin^2 of them. Only tensors with few elements notice.
//
// What this cannot do: a quantity whose exact value is zero (the gradient of a key's bias) is noise on
// both sides, its response is of the order of 1, and it is reported as untrusted rather than passed.
// Where the function is not smooth (top-k routing near a tie) the response of S runs may miss a jump.
#include "ttrace/tolerance/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "ttrace/error.h"

namespace ttrace {
namespace {

// As a number that a file can hold: a tensor that is zero, or finite, in the reference and not so in the
// perturbed run responds without bound. 1 already says that any value would pass.
double response_of(const Difference& difference) {
  const double rel_err = difference.rel_err();
  const bool bounded = std::isfinite(rel_err) && difference.nonfinite_mismatch == 0;
  return bounded ? rel_err : 1.0;
}

using Responses = std::map<ToleranceKey, double>;

// The largest response per kind and name.
Responses responses_of(const RunDifferences& run) {
  assert(run.pairs.size() == run.differences.size());
  Responses responses;
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const LogicalTensor& tensor = *run.pairs[i].reference;
    if (!is_floating(tensor.dtype)) continue;
    double& largest = responses[{tensor.id.kind, tensor.id.name}];
    largest = std::max(largest, response_of(run.differences[i]));
  }
  return responses;
}

bool is_stepped(Kind kind) { return kind == Kind::kParamDelta || kind == Kind::kParamAfter; }

// The largest jump of one element, relative to the root mean square of its tensor, per kind.
std::map<Kind, double> jumps_of(std::span<const RunDifferences> runs) {
  std::map<Kind, double> jumps;
  for (const RunDifferences& run : runs) {
    for (std::size_t i = 0; i < run.pairs.size(); ++i) {
      const Kind kind = run.pairs[i].reference->id.kind;
      const Difference& difference = run.differences[i];
      if (!is_stepped(kind) || difference.reference_square == 0) continue;
      const double rms = std::sqrt(difference.reference_square / static_cast<double>(difference.elements));
      double& largest = jumps[kind];
      largest = std::max(largest, difference.max_abs / rms);
    }
  }
  return jumps;
}

bool differs(const RunDifferences& run) {
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    if (is_floating(run.pairs[i].reference->dtype) && run.differences[i].differing > 0) return true;
  }
  return false;
}

void require_effect(std::span<const RunDifferences> perturbed) {
  if (perturbed.size() < kLeastPerturbedRuns) {
    throw InputError(
        fmt::format("{} perturbed runs; expected {} or more, since the largest of fewer responses is a matter of luck",
                    perturbed.size(), kLeastPerturbedRuns));
  }
  for (const RunDifferences& run : perturbed) {
    if (!differs(run)) {
      throw InputError(
          fmt::format("{}: every floating-point tensor equals the reference's: the perturbation had no "
                      "effect; expected a run collected with --perturb",
                      run.what));
    }
  }
}

void note_rerun(const Responses& rerun, ToleranceFile& file) {
  const auto moved = std::count_if(rerun.begin(), rerun.end(), [](const auto& item) { return item.second > 0; });
  if (moved == 0) return;
  const auto largest =
      std::max_element(rerun.begin(), rerun.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  file.notes.push_back(
      fmt::format("the reference is not reproducible: {} of {} tensors differ in the rerun, {} {} most, "
                  "by {:.3g}",
                  moved, rerun.size(), largest->first.second, name_of(largest->first.first), largest->second));
}

}  // namespace

double floor_of(Kind kind, Dtype stored, Dtype compute) { return epsilon_of(kind == Kind::kParam ? stored : compute); }

ToleranceFile estimate(std::span<const RunDifferences> perturbed, const RunDifferences* rerun,
                       const EstimateOptions& options) {
  require_effect(perturbed);
  ToleranceFile file;
  file.margin = options.margin;
  file.compute_dtype = name_of(options.compute_dtype);
  file.epsilon = epsilon_of(options.compute_dtype);

  const std::map<Kind, double> jumps = jumps_of(perturbed);
  for (const TensorPair& pair : perturbed[0].pairs) {
    const LogicalTensor& tensor = *pair.reference;
    if (!is_floating(tensor.dtype)) continue;
    double& floor = file.tensors[{tensor.id.kind, tensor.id.name}].floor;
    floor = std::max(floor, floor_of(tensor.id.kind, tensor.dtype, options.compute_dtype));
    const auto jump = jumps.find(tensor.id.kind);
    const std::int64_t elements = element_count(tensor.shape);
    if (jump == jumps.end() || elements == 0) continue;
    floor = std::max(floor, jump->second / std::sqrt(static_cast<double>(elements)));
  }
  for (const RunDifferences& run : perturbed) {
    for (const auto& [key, response] : responses_of(run)) file.tensors[key].samples.push_back(response);
  }
  if (rerun != nullptr) {
    const Responses responses = responses_of(*rerun);
    for (const auto& [key, response] : responses) file.tensors[key].rerun = response;
    note_rerun(responses, file);
  }
  for (auto& [key, tolerance] : file.tensors) {
    // A tensor that some runs lack would get its tolerance from the others, or from the floor alone.
    if (tolerance.samples.size() != perturbed.size()) {
      throw InputError(fmt::format("{} {}: measured in {} of {} perturbed runs; expected runs of one program",
                                   key.second, name_of(key.first), tolerance.samples.size(), perturbed.size()));
    }
    tolerance.estimate =
        std::max(*std::max_element(tolerance.samples.begin(), tolerance.samples.end()), tolerance.rerun.value_or(0));
    tolerance.allowed = options.margin * std::max(tolerance.estimate, tolerance.floor);
  }
  return file;
}

}  // namespace ttrace
