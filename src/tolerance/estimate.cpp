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
// less than its own noise. The floors are in floors.cpp; what no perturbation reaches is in reach.cpp.
//
// Near a tie a router may send a token of a perturbed run to other experts, and what follows then responds by far more
// than rounding moves it. A check excuses that where it happens in a candidate (judge/routing.h), so it must not widen
// what is allowed where it does not happen: responses that a re-routed token may have changed are left out, as long as
// kLeastPerturbedRuns others remain. In a deep model of low precision some token is re-routed in every run; tensors
// that come after it in all of them, such as all gradients, keep the wide estimate, and a note counts them.
//
// What this cannot do: a quantity whose exact value is zero (the gradient of a key's bias) is noise on
// both sides, its response is of the order of 1, and it is reported as untrusted rather than passed.
#include "ttrace/tolerance/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "tolerance/floors.h"
#include "tolerance/reach.h"
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

// The responses of one tensor: by run, those of its micro-batches and iterations.
struct Responses {
  std::vector<std::vector<double>> all, same_routing;  // the latter: where no re-routed token changed the tensor
};

double largest_of(const std::vector<double>& responses) {
  return responses.empty() ? 0 : *std::max_element(responses.begin(), responses.end());
}

std::map<ToleranceKey, Responses> responses_of(std::span<const RunDifferences> runs) {
  std::map<ToleranceKey, Responses> result;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const RunDifferences& run = runs[r];
    assert(run.pairs.size() == run.differences.size());
    assert(run.rerouted.empty() || run.rerouted.size() == run.pairs.size());
    for (std::size_t i = 0; i < run.pairs.size(); ++i) {
      const LogicalTensor& tensor = *run.pairs[i].reference;
      if (!is_floating(tensor.dtype)) continue;
      Responses& responses = result[{tensor.id.kind, tensor.id.name}];
      responses.all.resize(runs.size());
      responses.same_routing.resize(runs.size());
      const double response = response_of(run.differences[i]);
      responses.all[r].push_back(response);
      if (run.rerouted.empty() || !run.rerouted[i]) responses.same_routing[r].push_back(response);
    }
  }
  return result;
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

void note_rerun(const std::map<ToleranceKey, Responses>& rerun, ToleranceFile& file) {
  std::size_t moved = 0;
  const ToleranceKey* worst = nullptr;
  double most = 0;
  for (const auto& [key, responses] : rerun) {
    const double response = largest_of(responses.all[0]);
    moved += response > 0;
    if (response <= most) continue;
    worst = &key;
    most = response;
  }
  if (worst == nullptr) return;
  file.notes.push_back(
      fmt::format("the reference is not reproducible: {} of {} tensors differ in the rerun, {} {} most, "
                  "by {:.3g}",
                  moved, rerun.size(), worst->second, name_of(worst->first), most));
}

// What is left where the responses that a re-routed token may have changed are left out. `kept` counts the tensors
// where too few are left for that.
std::vector<std::vector<double>> choose(const Responses& responses, std::int64_t& kept) {
  std::size_t left = 0, all = 0;
  for (const auto& run : responses.same_routing) left += run.size();
  for (const auto& run : responses.all) all += run.size();
  if (left >= kLeastPerturbedRuns) return responses.same_routing;
  kept += left < all;
  return responses.all;
}

// A tensor that some runs lack would get its tolerance from the others, or from the floor alone.
void require_every_run(const ToleranceKey& key, std::size_t measured, std::size_t runs) {
  if (measured == runs) return;
  throw InputError(fmt::format("{} {}: measured in {} of {} perturbed runs; expected runs of one program", key.second,
                               name_of(key.first), measured, runs));
}

void note_wide(std::int64_t wide, ToleranceFile& file) {
  if (wide == 0) return;
  file.notes.push_back(
      fmt::format("in every perturbed run a router sent tokens to other experts, and {} tensors that come after it may "
                  "differ by as much as that changes them",
                  wide));
}

}  // namespace

ToleranceFile estimate(std::span<const RunDifferences> perturbed, const RunDifferences* rerun,
                       const EstimateOptions& options) {
  require_effect(perturbed);
  ToleranceFile file;
  file.margin = options.margin;
  file.estimator = options.estimator;
  file.compute_dtype = name_of(options.compute_dtype);
  file.epsilon = epsilon_of(options.compute_dtype);
  file.notes = notes_on_reach(perturbed, options);

  std::int64_t wide = 0;
  std::map<ToleranceKey, std::vector<double>> pooled;
  for (const auto& [key, responses] : responses_of(perturbed)) {
    const auto lacking =
        std::count_if(responses.all.begin(), responses.all.end(), [](auto& run) { return run.empty(); });
    require_every_run(key, perturbed.size() - static_cast<std::size_t>(lacking), perturbed.size());
    for (const std::vector<double>& run : choose(responses, wide)) {
      if (run.empty()) continue;
      file.tensors[key].samples.push_back(largest_of(run));
      pooled[key].insert(pooled[key].end(), run.begin(), run.end());
    }
  }
  note_wide(wide, file);
  if (rerun != nullptr) {
    const auto responses = responses_of({rerun, 1});
    for (const auto& [key, measured] : responses) {
      if (!file.tensors.contains(key)) require_every_run(key, 0, perturbed.size());
      file.tensors[key].rerun = largest_of(measured.all[0]);
    }
    note_rerun(responses, file);
  }
  const std::map<ToleranceKey, double> floors = floors_of(perturbed, pooled, options);
  for (auto& [key, tolerance] : file.tensors) {
    tolerance.estimate = std::max(largest_of(tolerance.samples), tolerance.rerun.value_or(0));
    tolerance.floor = floors.at(key);
    tolerance.allowed = options.margin * std::max(tolerance.estimate, tolerance.floor);
  }
  return file;
}

}  // namespace ttrace
