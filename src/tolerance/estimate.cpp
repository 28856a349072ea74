// Explains why a perturbed run says what a correct distributed run may differ by (TTrace, section 5).
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
// Light iterations (FurtherIterations in base/trace.h) are apart: what errors grow to in later steps is nothing that the
// first may differ by. They are allowed kLightSlack * max(allowed, margin * light), `light` being their own maximum.
//
// The maximum, not a mean: it is a bound that is asked for, and S is small. Micro-batches and iterations
// are pooled, since they are further samples of one random quantity. A run that is broken would decide it alone:
// family.cpp refuses it. The rerun measures what the run does
// by itself (atomics, autotuned kernels): a reference that is not reproducible cannot hold a candidate to
// less than its own noise. The floors are in floors.cpp; what no perturbation reaches is in reach.cpp.
//
// Near a tie a router may send a token of a perturbed run to other experts, and what follows responds by
// more than rounding moves it. These responses stay in the estimate: a correct candidate re-routes as many
// tokens, others than the runs did, and what its check excuses (judge/routing.h) is wider still. Without
// them, two correct bf16 runs of a mixture of 4 experts in 4 layers had 226 and 419 of 2,341 tensors
// untrusted rather than compared, and one a router's choice called wrong. With them a third of the estimates
// is larger, mostly by 2 to 11 times; a note counts the tensors.
//
// Monte Carlo arithmetic perturbs the result of every operation, not the first activation alone: that is the
// estimator `modules` (src/python/ttrace_torch/perturb.py). It reaches branches that the first activation does not
// feed. But it expects more of every tensor, by 1.65 times: with each estimator's margin at the largest ratio of any
// correct run, it allows a typical tensor 1.3 times what `input` does, or as much where no router re-routes
// (tools/laboratory/evaluations/margins.py; src/manual/estimate-tolerance.md has the table). So `input`, the paper's,
// is the default.
//
// Statistics beside the norm, and what they may be, are in statistics.cpp, and what several tensors have in common in
// coherence.cpp.
//
// A tensor may be exactly zero in the reference in one micro-batch, and not in the next: what a student and a teacher
// that begins as its copy differ by (Mean Teacher), whose gradient rounding makes other than zero as soon as one of the
// two is perturbed. Such a response has no relative size, and says nothing of the name's other micro-batches: it is
// kept apart, by its norm (`of_zero`), which says how large a rounding of zero is.
//
// An anchor is one run of the same program in a wider dtype (fp32 where the reference computes in bf16). How far it is
// from the reference is the reference's own rounding, systematic rounding with it, in place of a response to a
// perturbation; a candidate rounds as much, otherwise. It is one sample of each tensor where perturbed runs are three,
// and what it says of a sum that happens to round well is too little (tools/laboratory/evaluations/anchor.py measures
// both). All else is as above, with that one run.
//
// What this cannot do: a quantity whose exact value is zero (the gradient of a key's bias) is noise on
// both sides, its response is of the order of 1, and it is reported as untrusted rather than passed.
#include "tolerance/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "tolerance/estimate_coherence.h"
#include "tolerance/family.h"
#include "tolerance/floors.h"
#include "tolerance/reach.h"
#include "tolerance/statistics.h"

namespace ttrace {
namespace {

// Returns the run's rel_err, as a number that a file can hold. A tensor that is zero, or finite, in the reference and
// not so in the perturbed run responds without bound; 1 stands for that, since with a tolerance of 1 any value passes.
double response_of(const Difference& difference) {
  // A difference that was estimated from sketches may be larger than it seems.
  const double rel_err = difference.rel_err() * (difference.sketch ? difference.sketch->widening : 1);
  const bool bounded = std::isfinite(rel_err) && difference.nonfinite_mismatch == 0;
  return bounded ? rel_err : 1.0;
}

struct Responses {
  std::vector<std::vector<double>> by_run;  // of each run: those of its micro-batches and iterations
  bool rerouted = false;                    // a re-routed token may have changed some of them
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
      responses.by_run.resize(runs.size());
      responses.by_run[r].push_back(response_of(run.differences[i]));
      responses.rerouted |= !run.rerouted.empty() && run.rerouted[i];
    }
  }
  return result;
}

void require_effective_runs(std::span<const RunDifferences> perturbed, bool by_anchor) {
  if (by_anchor && !differs(perturbed[0])) {
    throw InputError(
        fmt::format("{}: every floating-point tensor equals the reference's; expected a run that computes in a wider "
                    "dtype",
                    perturbed[0].what));
  }
  if (by_anchor) return;
  if (perturbed.size() < kLeastPerturbedRuns) {
    throw InputError(
        fmt::format("{} perturbed runs; expected {} or more, since the largest of fewer responses is a matter of luck",
                    perturbed.size(), kLeastPerturbedRuns));
  }
  if (std::none_of(perturbed.begin(), perturbed.end(), differs)) {
    throw InputError(fmt::format(
        "{}, and all others: every floating-point tensor equals the reference's: the perturbation had no "
        "effect; expected runs collected with --perturb that reach what is recorded, or else `ttrace check -t default`",
        perturbed[0].what));
  }
}

// A number or two that are all that a perturbation reaches, such as the loss that is all a model returns, may round to
// the reference's.
void note_runs_without_effect(std::span<const RunDifferences> perturbed, ToleranceFile& file) {
  for (const RunDifferences& run : perturbed) {
    if (differs(run)) continue;
    file.notes.push_back(fmt::format(
        "{}: every floating-point tensor equals the reference's: its perturbation was rounded away", run.what));
  }
}

void note_rerun(const std::map<ToleranceKey, Responses>& rerun, ToleranceFile& file) {
  std::size_t moved = 0;
  const ToleranceKey* worst = nullptr;
  double most = 0;
  for (const auto& [key, responses] : rerun) {
    const double response = largest_of(responses.by_run[0]);
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

// Refuses a tensor that some runs lack: its tolerance would come from the others, or from the floor alone.
void require_every_run(const ToleranceKey& key, std::size_t measured, std::size_t runs) {
  if (measured == runs) return;
  throw InputError(fmt::format("{} {}: measured in {} of {} perturbed runs; expected runs of one program", key.second,
                               name_of(key.first), measured, runs));
}

void note_rerouting(const std::map<ToleranceKey, Responses>& perturbed, ToleranceFile& file) {
  const auto rerouted =
      std::count_if(perturbed.begin(), perturbed.end(), [](const auto& item) { return item.second.rerouted; });
  if (rerouted == 0) return;
  file.notes.push_back(fmt::format(
      "perturbed runs sent tokens near a tie to other experts: {} of {} tensors come after such a token, and "
      "may differ by as much as it changed them",
      rerouted, perturbed.size()));
}

// True where something else than light iterations has the tensor's kind and name.
std::set<ToleranceKey> keys_of_whole(const RunDifferences& run) {
  std::set<ToleranceKey> keys;
  for (const TensorPair& pair : run.pairs) {
    if (!pair.reference->light) keys.emplace(pair.reference->id.kind, pair.reference->id.name);
  }
  return keys;
}

// Returns what the run has of light iterations, or the rest. A tensor that only light ones have is of the rest.
RunDifferences part_of(const RunDifferences& run, bool light) {
  const std::set<ToleranceKey> whole = keys_of_whole(run);
  RunDifferences part{run.what, {}, {}, {}};
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const LogicalTensor& tensor = *run.pairs[i].reference;
    if ((tensor.light && whole.contains({tensor.id.kind, tensor.id.name})) != light) continue;
    part.pairs.push_back(run.pairs[i]);
    part.differences.push_back(run.differences[i]);
    if (!run.rerouted.empty()) part.rerouted.push_back(run.rerouted[i]);
  }
  return part;
}

// True of what is zero in the reference and not in the run.
bool is_of_zero(const Difference& difference) {
  return difference.reference_square == 0 && difference.candidate_square > 0;
}

// Returns the run without what is zero in the reference and not in the run, where others of its name are not zero, and
// keeps the largest norms of these.
RunDifferences without_zeros(const RunDifferences& run, std::map<ToleranceKey, double>& norms) {
  std::set<ToleranceKey> have_value;
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const TensorId& id = run.pairs[i].reference->id;
    if (run.differences[i].reference_square > 0) have_value.emplace(id.kind, id.name);
  }
  RunDifferences rest{run.what, {}, {}, {}};
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const LogicalTensor& tensor = *run.pairs[i].reference;
    const ToleranceKey key{tensor.id.kind, tensor.id.name};
    if (is_floating(tensor.dtype) && is_of_zero(run.differences[i]) && have_value.contains(key)) {
      double& norm = norms[key];
      norm = std::max(norm, std::sqrt(run.differences[i].candidate_square));
      continue;
    }
    rest.pairs.push_back(run.pairs[i]);
    rest.differences.push_back(run.differences[i]);
    if (!run.rerouted.empty()) rest.rerouted.push_back(run.rerouted[i]);
  }
  return rest;
}

// Returns the norms of the reference's parameters, by name.
std::map<std::string, double> norms_of_parameters(const RunDifferences& run) {
  std::map<std::string, double> norms;
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const TensorId& id = run.pairs[i].reference->id;
    if (id.kind == Kind::kParam) norms.try_emplace(id.name, std::sqrt(run.differences[i].reference_square));
  }
  return norms;
}

// Adds what light iterations respond, and what of an update each element may be off by: a rounding step of its
// parameter. Perturbed runs of small updates may well see none. Whole iterations prove such a step by itself.
void add_light(const RunDifferences& run, ToleranceFile& file) {
  const RunDifferences light = part_of(run, true);
  const auto add = [&](const ToleranceKey& key, double rel_err) {
    std::optional<double>& most = file.tensors[key].light;
    most = std::max(most.value_or(0), rel_err);
  };
  for (const auto& [key, measured] : responses_of({&light, 1})) add(key, largest_of(measured.by_run[0]));
  const std::map<std::string, double> norms = norms_of_parameters(run);
  for (std::size_t i = 0; i < light.pairs.size(); ++i) {
    const LogicalTensor& update = *light.pairs[i].reference;
    const auto parameter = norms.find(update.id.name);
    const double norm = std::sqrt(light.differences[i].reference_square);
    if (update.id.kind != Kind::kParamDelta || parameter == norms.end() || norm == 0) continue;
    add({update.id.kind, update.id.name}, std::min(epsilon_of(update.dtype) * parameter->second / norm, 1.0));
  }
}

}  // namespace

bool differs(const RunDifferences& run) {
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    if (is_floating(run.pairs[i].reference->dtype) && run.differences[i].differing > 0) return true;
  }
  return false;
}

namespace {

std::set<ToleranceKey> states_in(const RunDifferences& run) {
  std::set<ToleranceKey> states;
  for (const TensorPair& pair : run.pairs) {
    const TensorId& id = pair.reference->id;
    if (is_optimizer_state(id.kind)) states.emplace(id.kind, id.name);
  }
  return states;
}

// The state of an optimizer is recorded where its step needs it, as a clipped gradient does in some runs alone: what not
// all perturbed runs have has no tolerance.
std::set<ToleranceKey> states_in_some_runs(std::span<const RunDifferences> perturbed, const RunDifferences* rerun) {
  std::map<ToleranceKey, std::size_t> counts;
  for (const RunDifferences& run : perturbed) {
    for (const ToleranceKey& key : states_in(run)) ++counts[key];
  }
  std::set<ToleranceKey> some = rerun == nullptr ? std::set<ToleranceKey>() : states_in(*rerun);
  for (const auto& [key, count] : counts) {
    some.erase(key);
    if (count < perturbed.size()) some.insert(key);
  }
  return some;
}

RunDifferences without(const std::set<ToleranceKey>& keys, const RunDifferences& run) {
  RunDifferences kept{run.what, {}, {}, {}};
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const TensorId& id = run.pairs[i].reference->id;
    if (keys.contains({id.kind, id.name})) continue;
    kept.pairs.push_back(run.pairs[i]);
    kept.differences.push_back(run.differences[i]);
    if (!run.rerouted.empty()) kept.rerouted.push_back(run.rerouted[i]);
  }
  return kept;
}

ToleranceFile estimate_whole(std::span<const RunDifferences> perturbed, const RunDifferences* rerun,
                             const EstimateOptions& options, OwnRoundings own_sums) {
  require_effective_runs(perturbed, options.by_anchor);
  require_one_family(perturbed, rerun, options);
  own_sums.merge(measure_own_norms(perturbed[0].pairs, perturbed[0].differences));
  for (const auto& [key, rounding] : roundings_of_unreached(perturbed, options)) {
    if (OwnRounding& own = own_sums[key]; own.norm < rounding.norm) own = rounding;
  }
  ToleranceFile file;
  file.margin = options.margin;
  file.estimator = options.estimator;
  file.compute_dtype = name_of(options.compute_dtype);
  file.epsilon = epsilon_of(options.compute_dtype);
  file.notes = note_unreached(perturbed, options);
  if (!options.by_anchor) note_runs_without_effect(perturbed, file);

  const std::map<ToleranceKey, Responses> responses = responses_of(perturbed);
  std::map<ToleranceKey, std::vector<double>> pooled;
  for (const auto& [key, measured] : responses) {
    const auto lacking = std::count(measured.by_run.begin(), measured.by_run.end(), std::vector<double>());
    require_every_run(key, perturbed.size() - static_cast<std::size_t>(lacking), perturbed.size());
    for (const std::vector<double>& run : measured.by_run) {
      file.tensors[key].samples.push_back(largest_of(run));
      pooled[key].insert(pooled[key].end(), run.begin(), run.end());
    }
  }
  note_rerouting(responses, file);
  if (rerun != nullptr) {
    const std::map<ToleranceKey, Responses> noise = responses_of({rerun, 1});
    for (const auto& [key, measured] : noise) {
      if (!file.tensors.contains(key)) require_every_run(key, 0, perturbed.size());
      file.tensors[key].rerun = largest_of(measured.by_run[0]);
    }
    note_rerun(noise, file);
  }
  const std::map<ToleranceKey, double> floors = estimate_floors(perturbed, pooled, options, own_sums);
  for (auto& [key, tolerance] : file.tensors) {
    tolerance.estimate = std::max(largest_of(tolerance.samples), tolerance.rerun.value_or(0));
    tolerance.floor = floors.at(key);
    tolerance.allowed = options.margin * std::max(tolerance.estimate, tolerance.floor);
  }
  estimate_statistics(perturbed, rerun, options, own_sums, file);
  estimate_coherence(perturbed, rerun, options, own_sums, file);
  require_signal(file, perturbed);
  return file;
}

}  // namespace

ToleranceFile estimate(std::span<const RunDifferences> perturbed, const RunDifferences* rerun,
                       const EstimateOptions& options, OwnRoundings own_sums) {
  const std::set<ToleranceKey> partial = states_in_some_runs(perturbed, rerun);
  std::map<ToleranceKey, double> norms;
  std::vector<RunDifferences> runs, whole;
  for (const RunDifferences& run : perturbed) runs.push_back(without_zeros(without(partial, run), norms));
  std::optional<RunDifferences> again, whole_again;
  if (rerun != nullptr) again = without_zeros(without(partial, *rerun), norms);
  for (const RunDifferences& run : runs) whole.push_back(part_of(run, false));
  if (again) whole_again = part_of(*again, false);
  ToleranceFile file = estimate_whole(whole, whole_again ? &*whole_again : nullptr, options, std::move(own_sums));
  for (const RunDifferences& run : runs) add_light(run, file);
  if (again) add_light(*again, file);
  for (const auto& [key, norm] : norms) file.tensors[key].of_zero = norm;
  return file;
}

}  // namespace ttrace
