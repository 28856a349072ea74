// Perturbed runs answer the same rounding, each drawn anew, with the same network: their responses are of one size.
// Over 18 references of tools/laboratory/sweeps (bf16, fp16, fp32, FP8; dense, experts; one iteration and more) the
// median, over the tensors of a kind, of a run's response divided by the largest of the others' is at most 1.3, and
// that of a single tensor at most 1.9; but for an optimizer's steps, which jump and are left out, and for tensors that
// a re-routed token may have changed (4.7). A run that is 1.5 times the reference, is fed other data or begins with
// other weights is at 10 (FP8) to 10^6 (fp32) for most tensors. A rerun has only the noise of the program itself, which
// is no larger than that of rounding.
//
// Where a tensor has few elements, luck is larger: so many times as far as the root mean square of the others is one
// response with the probability kFewLevel, by Fisher's F as in floors.cpp. The gradients of a softmax's scores add up
// to zero, so that one element of them is not free: in a classifier of two classes one run was at 42 times.
//
// A gradient is not continuous where an activation is zero (judge/jumps.h), or an absolute difference: of some 10^6 such
// numbers one changes its sign by rounding, in this run and not in the others, and one element of a gradient, and
// all behind it, moves 10^4 times as far. A run of another program differs in more than a few elements.
//
// A parameter whose whole gradient is rounding steps by chance: in Adam's first step each element moves by the sign of a
// rounding, and may in one run have the reference's by luck, in the next not. nanochat scales each layer's input by a
// number of its own, and normalises it right behind: while all projections are zero, the gradient of these numbers is 0
// but for rounding, and one draw of theirs moves all layers of the next iteration, by 1e-5 in two runs and 2e-4 in the
// third. No ratio bounds that, as none bounds what a token does that is sent elsewhere; what comes behind such a step is
// left out, where it moves the other runs as well: most such parameters (the bias of attention's keys) reach nothing.
// What comes before is held as ever. That others have it rests on these alone: a run is no witness for itself.
//
// A rerun that differs from the reference is one of two things. A program that does not repeat itself draws reference,
// rerun and perturbed runs from one scatter: none of them is farther from the reference than from each other. A program
// that was changed after its reference was kept is close to itself and far from the reference, in the norm or, where
// noise is as large as the change, in the factor that all tensors of a kind have in common.
#include "tolerance/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/outcome.h"
#include "compare/few_elements.h"
#include "tolerance/floors.h"
#include "tolerance/quantiles.h"

namespace ttrace {
namespace {

constexpr double kKindSpan = 4;     // three times the largest median of a kind
constexpr double kTensorSpan = 10;  // five times the largest of a tensor
constexpr std::size_t kFewTensors = 4;

bool is_left_by_step(const TensorId& id, std::int32_t first_iteration) {
  return (id.kind == Kind::kParam || id.kind == Kind::kBuffer) && id.iteration > first_iteration;
}

// The largest over micro-batches and iterations.
struct Response {
  double largest = 0;  // rel_err
  double scale = 0;    // |scale_err|
  std::int64_t elements = 0;
};
using RunResponses = std::map<ToleranceKey, Response>;

// Returns how many times as far as the `others` runs one run may move a tensor.
double tensor_span(std::int64_t elements, std::size_t others) {
  if (elements > kFewElements) return kTensorSpan;
  const auto free = static_cast<double>(std::max<std::int64_t>(elements - 1, 1));
  return std::max(kTensorSpan, std::sqrt(fisher_quantile(
                                   kFewLevel, free, free * static_cast<double>(std::max<std::size_t>(others, 1)))));
}

Finding place_of(const TensorPair& pair) {
  Finding place;
  place.id = pair.reference->id;
  place.order = pair.reference->order;
  return place;
}

// Says of each pair whether another choice may have changed it. Where experts' rows are not known, a token that a run
// sends elsewhere shows in integers that differ: the experts that a router chose. What follows in the iteration, and
// all of the iterations after it, responds to more than rounding. Integers that differ before any floating-point tensor
// of the micro-batch does are no choice, but other data.
std::vector<bool> find_chosen_otherwise(const RunDifferences& run) {
  std::vector<std::size_t> order(run.pairs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<Finding> places;
  for (const TensorPair& pair : run.pairs) places.push_back(place_of(pair));
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return executes_before(places[a], places[b]); });
  std::vector<bool> changed(run.pairs.size());
  std::optional<std::int32_t> first;  // iteration with a choice
  // Iterations and micro-batches in which a floating-point tensor differs, and those with a choice.
  std::set<std::pair<std::int32_t, std::int32_t>> moved, chosen;
  for (const std::size_t i : order) {
    const TensorId& id = places[i].id;
    const bool of_all = id.microbatch == kNoMicrobatch && first == id.iteration;
    changed[i] = of_all || (first && *first < id.iteration) || chosen.contains({id.iteration, id.microbatch});
    if (run.differences[i].differing == 0) continue;
    if (is_floating(run.pairs[i].reference->dtype)) {
      moved.emplace(id.iteration, id.microbatch);
    } else if (moved.contains({id.iteration, id.microbatch})) {
      if (!first) first = id.iteration;
      chosen.emplace(id.iteration, id.microbatch);
    }
  }
  return changed;
}

constexpr std::int32_t kLastOfAll = std::numeric_limits<std::int32_t>::max();

// Returns the responses up to iteration `last`, and of iteration `jump` those of what comes before the backward.
RunResponses measured_in(const RunDifferences& run, std::int32_t last = kLastOfAll, std::int32_t jump = kLastOfAll) {
  RunResponses responses;
  const std::vector<bool> chosen_otherwise = find_chosen_otherwise(run);
  std::int32_t first = kLastOfAll;
  for (const TensorPair& pair : run.pairs) first = std::min(first, pair.reference->id.iteration);
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const LogicalTensor& tensor = *run.pairs[i].reference;
    const Difference& difference = run.differences[i];
    if (is_left_by_step(tensor.id, first)) continue;
    if (!is_floating(tensor.dtype) || (!run.rerouted.empty() && run.rerouted[i])) continue;
    if (chosen_otherwise[i] || tensor.id.iteration > std::min(last, jump)) continue;
    if (tensor.id.iteration == jump && phase_of(tensor.id) >= Phase::kBackward) continue;
    if (difference.reference_square == 0 || difference.nonfinite_mismatch > 0) continue;
    Response& response = responses[{tensor.id.kind, tensor.id.name}];
    response.largest = std::max(response.largest, difference.rel_err());
    response.scale = std::max(response.scale, std::abs(difference.scale_err()));
    response.elements = std::max(response.elements, difference.elements);
  }
  return responses;
}

void require_finite(const RunDifferences& run) {
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const Difference& difference = run.differences[i];
    const bool spoilt = difference.reference_nan + difference.reference_inf == 0 &&
                        difference.candidate_nan + difference.candidate_inf > 0;
    if (!spoilt) continue;
    throw InputError(fmt::format(
        "{}: {} holds {} NaN and {} Inf, and none in the reference; expected a run of the same program", run.what,
        to_string(run.pairs[i].reference->id), difference.candidate_nan, difference.candidate_inf));
  }
}

// Returns the lower of two.
double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

[[noreturn]] void fail_as_outlier(const RunDifferences& run, const std::string& what, double times,
                                  const char* others) {
  throw UnlikeOthers(
      run.what,
      fmt::format("{}: moves {} {:.3g} times as far as {}; expected runs of one program: the same seeds, data and "
                  "software: collect it again",
                  run.what, what, times, others));
}

// Returns the iteration in which what moves too far begins with a few elements of an activation's gradient; nothing where
// it begins otherwise.
std::optional<std::int32_t> find_jump(const RunDifferences& run, const RunResponses& others, std::size_t other_runs,
                                      double rounding) {
  const auto like = [&](const TensorId& id) {
    const auto other = others.find({id.kind, id.name});
    return std::max(other == others.end() ? 0 : other->second.largest, rounding);
  };
  std::vector<std::size_t> too_far;
  std::vector<Finding> places;
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const LogicalTensor& tensor = *run.pairs[i].reference;
    places.push_back(place_of(run.pairs[i]));
    if (!is_floating(tensor.dtype) || jumps(tensor.id.kind) || run.differences[i].reference_square == 0) continue;
    const double span = tensor_span(run.differences[i].elements, other_runs);
    if (run.differences[i].rel_err() > span * like(tensor.id)) too_far.push_back(i);
  }
  const auto first = std::min_element(too_far.begin(), too_far.end(), [&](std::size_t a, std::size_t b) {
    return executes_before(places[a], places[b]);
  });
  if (first == too_far.end()) return std::nullopt;
  const TensorId& id = places[*first].id;
  if (phase_of(id) != Phase::kBackward) return std::nullopt;
  const auto few = few_elements_that_differ(run.pairs[*first], kTensorSpan * like(id));
  return few && !few->empty() ? std::optional(id.iteration) : std::nullopt;
}

// True where some parameter does not begin with the reference's bits, which moves all that follows.
bool begins_otherwise(const RunDifferences& run) {
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const TensorId& id = run.pairs[i].reference->id;
    if (id.kind == Kind::kParam && id.iteration == 0 && run.differences[i].differing > 0) return true;
  }
  return false;
}

// Holds a run against the largest of the others' responses, and against a rounding step.
void require_like(const RunDifferences& run, std::int32_t last, const RunResponses& others, std::size_t other_runs,
                  const char* what_others, const EstimateOptions& options) {
  const double step = epsilon_of(options.compute_dtype);
  const double rounding = begins_otherwise(run) ? std::max(step, rounding_of_beginning(options.compute_dtype)) : step;
  const std::optional<std::int32_t> jump = find_jump(run, others, other_runs, rounding);
  const RunResponses own = measured_in(run, last, jump.value_or(kLastOfAll));
  std::map<Kind, std::vector<double>> ratios;
  const ToleranceKey* worst = nullptr;
  double most = 0;
  for (const auto& [key, response] : own) {
    if (jumps(key.first)) continue;
    const auto found = others.find(key);
    const double other = found == others.end() ? 0 : found->second.largest;
    const double ratio = response.largest / std::max(other, rounding);
    ratios[key.first].push_back(ratio);
    const bool is_noise = options.margin * other >= 1;
    if (is_noise || ratio <= std::max(most, tensor_span(response.elements, other_runs))) continue;
    worst = &key;
    most = ratio;
  }
  for (auto& [kind, values] : ratios) {
    const double median = median_of(values);
    if (median <= kKindSpan) continue;
    fail_as_outlier(run, fmt::format("a typical {}", name_of(kind)), median, what_others);
  }
  if (worst != nullptr) {
    fail_as_outlier(run, fmt::format("{} {}", printable(worst->second), name_of(worst->first)), most, what_others);
  }
}

// Returns the largest responses of all runs but one.
RunResponses largest_but(const std::vector<RunResponses>& runs, std::size_t left_out) {
  RunResponses largest;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (r == left_out) continue;
    for (const auto& [key, response] : runs[r]) {
      Response& of_all = largest[key];
      of_all.largest = std::max(of_all.largest, response.largest);
      of_all.scale = std::max(of_all.scale, response.scale);
    }
  }
  return largest;
}

using SomeRuns = std::vector<const RunDifferences*>;

// Returns the first iteration in which some parameter's gradient, and the step that follows, is rounding in all runs.
std::optional<std::int32_t> first_step_of_noise(const SomeRuns& runs, double margin) {
  std::map<std::pair<std::int32_t, std::string>, std::size_t> gradients, steps;  // of how many runs
  for (const RunDifferences* const run : runs) {
    for (std::size_t i = 0; i < run->pairs.size(); ++i) {
      const TensorId& id = run->pairs[i].reference->id;
      const Difference& difference = run->differences[i];
      const bool is_noise = difference.reference_square > 0 && margin * difference.rel_err() >= 1;
      if (!is_noise) continue;
      if (id.kind == Kind::kMainGrad) ++gradients[{id.iteration, id.name}];
      if (id.kind == Kind::kParamDelta) ++steps[{id.iteration, id.name}];
    }
  }
  for (const auto& [parameter, count] : gradients) {
    const auto step = steps.find(parameter);
    if (count == runs.size() && step != steps.end() && step->second == runs.size()) return parameter.first;
  }
  return std::nullopt;
}

// Returns the last iteration of which rounding alone decides how far these runs move a typical tensor: that of a step of
// noise, where in those behind it a typical tensor of some kind moves farther, in all of them together, than before.
std::int32_t last_smooth_iteration(const SomeRuns& runs, const EstimateOptions& options) {
  const std::optional<std::int32_t> step = first_step_of_noise(runs, options.margin);
  if (!step) return kLastOfAll;
  std::vector<RunResponses> before, all;
  for (const RunDifferences* const run : runs) {
    before.push_back(measured_in(*run, *step));
    all.push_back(measured_in(*run));
  }
  const RunResponses at_first = largest_but(before, before.size()), ever = largest_but(all, all.size());
  std::map<Kind, std::vector<double>> ratios;
  for (const auto& [key, response] : at_first) {
    if (jumps(key.first) || key.first == Kind::kParam || options.margin * response.largest >= 1) continue;
    const double rounding = std::max(response.largest, epsilon_of(options.compute_dtype));
    ratios[key.first].push_back(ever.at(key).largest / rounding);
  }
  const bool is_moved = std::any_of(ratios.begin(), ratios.end(), [](const auto& of_kind) {
    return of_kind.second.size() >= kFewTensors && median_of(of_kind.second) > kKindSpan;
  });
  return is_moved ? *step : kLastOfAll;
}

// Returns how many times as far it is from the reference as from its like; infinity from what is equal to the last bit.
double times_as_far(double from_reference, double from_like) {
  return from_reference == 0 ? 0 : from_reference / from_like;
}

[[noreturn]] void fail_as_other_program(const RunDifferences& rerun, const std::string& what, double times) {
  throw InputError(fmt::format(
      "{}: differs from the reference, and not from the perturbed runs: {} is {} as far from the reference's; expected "
      "a reference of the program that runs now: collect it again",
      rerun.what, what, std::isinf(times) ? "endless times" : fmt::format("{:.3g} times", times)));
}

}  // namespace

bool jumps(Kind kind) { return kind == Kind::kParamDelta || kind == Kind::kParamAfter || kind == Kind::kBufferAfter; }

double rounding_of_beginning(Dtype dtype) {
  constexpr double kRoundings = 64;
  const double epsilon = epsilon_of(dtype);
  return epsilon <= epsilon_of(Dtype::kFloat32) ? kRoundings * epsilon : 0;
}

// Nothing that a perturbation reaches comes before the first iteration's parameters.
void require_same_beginning(const RunDifferences& run) {
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const LogicalTensor& tensor = *run.pairs[i].reference;
    const double rel_err = run.differences[i].rel_err();
    if (tensor.id.kind != Kind::kParam || tensor.id.iteration != 0 || !is_floating(tensor.dtype)) continue;
    if (rel_err <= std::max(epsilon_of(tensor.dtype), rounding_of_beginning(tensor.dtype))) continue;
    throw InputError(
        fmt::format("{}: begins with other parameters than the reference: {} differs by {:.3g}; expected a run of the "
                    "same program: set its seeds, or collect the reference again where the program has changed since",
                    run.what, to_string(tensor.id), rel_err));
  }
}

void require_program_of_reference(const RunDifferences& rerun, std::span<const RunDifferences> from_rerun,
                                  const EstimateOptions& options) {
  std::vector<RunResponses> responses;
  for (const RunDifferences& run : from_rerun) responses.push_back(measured_in(run));
  const RunResponses like = largest_but(responses, responses.size());
  std::map<Kind, std::vector<double>> norms, scales;
  for (const auto& [key, response] : measured_in(rerun)) {
    const auto found = like.find(key);
    if (found == like.end() || options.margin * found->second.largest >= 1) continue;
    const double times = times_as_far(response.largest, found->second.largest);
    norms[key.first].push_back(times);
    scales[key.first].push_back(times_as_far(response.scale, found->second.scale));
    if (jumps(key.first) || times <= tensor_span(response.elements, from_rerun.size())) continue;
    fail_as_other_program(rerun, fmt::format("{} {}", printable(key.second), name_of(key.first)), times);
  }
  for (const auto* const ratios : {&norms, &scales}) {
    for (const auto& [kind, values] : *ratios) {
      const double median = median_of(values);
      // The median of few tensors is one tensor's.
      if (median > (values.size() < kFewTensors ? kTensorSpan : kKindSpan))
        fail_as_other_program(rerun, fmt::format("a typical {}", name_of(kind)), median);
    }
  }
}

void require_one_family(std::span<const RunDifferences> perturbed, const RunDifferences* rerun,
                        const EstimateOptions& options) {
  for (const RunDifferences& run : perturbed) {
    require_finite(run);
    require_same_beginning(run);
  }
  for (std::size_t r = 0; r < perturbed.size() && !options.by_anchor; ++r) {  // an anchor has no like
    SomeRuns others;
    for (const RunDifferences& run : perturbed) {
      if (&run != &perturbed[r]) others.push_back(&run);
    }
    const std::int32_t last = last_smooth_iteration(others, options);
    std::vector<RunResponses> responses;
    for (const RunDifferences* const run : others) responses.push_back(measured_in(*run, last));
    require_like(perturbed[r], last, largest_but(responses, responses.size()), others.size(),
                 "every other perturbed run", options);
  }
  if (rerun == nullptr) return;
  std::vector<RunResponses> responses;
  for (const RunDifferences& run : perturbed) responses.push_back(measured_in(run));
  require_finite(*rerun);
  require_same_beginning(*rerun);
  require_like(*rerun, kLastOfAll, largest_but(responses, responses.size()), perturbed.size(), "every perturbed run",
               options);
}

namespace {

// True where a rerun has what is noise of the kind within rounding.
bool repeats_itself(const ToleranceFile& file, Kind kind) {
  return std::all_of(file.tensors.begin(), file.tensors.end(), [&](const auto& item) {
    const auto& [key, tolerance] = item;
    return key.first != kind || tolerance.allowed < 1 || tolerance.rerun.value_or(1) * file.margin < 1;
  });
}

}  // namespace

void require_signal(const ToleranceFile& file, std::span<const RunDifferences> perturbed) {
  std::map<ToleranceKey, bool> has_value;  // in some iteration and micro-batch: finite, and not zero
  for (const RunDifferences& run : perturbed) {
    for (std::size_t i = 0; i < run.pairs.size(); ++i) {
      const LogicalTensor& tensor = *run.pairs[i].reference;
      if (!is_floating(tensor.dtype)) continue;
      has_value[{tensor.id.kind, tensor.id.name}] |= run.differences[i].reference_square > 0;
    }
  }
  Proofs proofs;
  for (const auto& [key, tolerance] : file.tensors) {
    KindProof& proof = proofs[key.first];
    ++proof.compared;
    if (tolerance.allowed >= 1) {
      ++proof.others[std::string(name_of(Reason::kNoise))];
    } else if (!has_value[key]) {
      ++proof.others[std::string(name_of(Reason::kAllZero))];
    } else {
      ++proof.proved;
    }
  }
  for (const Kind kind : unproved_kinds(proofs)) {
    // The first update of Adam is a sign, which rounding turns, and all there is of a parameter that began at zero. A
    // check proves both by the step.
    if (kind == Kind::kParamDelta || kind == Kind::kParamAfter) continue;
    const KindProof& proof = proofs.at(kind);
    const auto noise = proof.others.find(std::string(name_of(Reason::kNoise)));
    if (noise == proof.others.end() || noise->second <= proof.compared - noise->second - proof.proved) continue;
    const char* const what =
        repeats_itself(file, kind)
            ? "in the reference they are what rounding leaves of zero, as where equal things are subtracted, and "
              "nothing can be checked with them; expected an iteration in which they are more, such as the next "
              "(collect --iterations 1)"
            : "pure noise, with which nothing can be checked; expected a program that repeats itself: set its seeds, "
              "feed it the same data in the same order, without dropout";
    throw InputError(
        fmt::format("{} of {} tolerances of {} are 1 or more: {}", noise->second, proof.compared, name_of(kind), what));
  }
}

}  // namespace ttrace
