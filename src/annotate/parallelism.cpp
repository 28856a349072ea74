#include "annotate/parallelism.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "align/shard_mapping.h"
#include "annotate/shared_parameters.h"
#include "base/tensor_name.h"
#include "identify/local_experts.h"
#include "identify/microbatch.h"
#include "identify/ranks.h"
#include "judge/match.h"

namespace ttrace {
namespace {

using StageNumbers = std::vector<std::set<std::int64_t>>;  // by stage, the layer numbers that it uses

// Finds, for each path before a number (`decoder.layers`), the numbers that follow it on each stage.
std::map<std::string, StageNumbers> numbers_by_stage(const Trace& trace, const Axis& axis) {
  std::map<std::string, StageNumbers> numbers;
  for (const RankTrace& rank : trace.ranks) {
    const auto stage = static_cast<std::size_t>(rank.coordinates.at(axis.name));
    for (const Entry& entry : rank.entries) {
      if (const auto number = number_in(entry.id.name)) {
        StageNumbers& stages = numbers[std::string(number->prefix)];
        stages.resize(static_cast<std::size_t>(axis.size));
        stages[stage].insert(number->value);
      }
    }
  }
  return numbers;
}

bool uses_local_numbers(const StageNumbers& stages) {
  std::size_t count = 0;
  std::set<std::int64_t> different;
  for (const auto& numbers : stages) {
    count += numbers.size();
    different.insert(numbers.begin(), numbers.end());
  }
  return different.size() < count;
}

std::int64_t layer_count(const StageNumbers& stages) {
  std::int64_t sum = 0;
  for (const auto& numbers : stages) sum += static_cast<std::int64_t>(numbers.size());
  return sum;
}

// Measures the relative error of each module's input, by the identity of the reference's tensor.
std::map<TensorId, double> input_errors(const Trace& trace, const Alignment& reference, const Annotations& settings) {
  const Alignment alignment = align(trace, settings, layout_of(reference));
  std::vector<TensorPair> pairs;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (id.kind != Kind::kInput || id.microbatch < 0 || id.pass != Pass::kForward) continue;
    const LogicalTensor* same = counterpart(reference, id);
    if (same != nullptr && same->shape == tensor.shape) pairs.push_back({same, &tensor});
  }
  const std::vector<Difference> differences = compare(pairs, {});
  std::map<TensorId, double> errors;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    Fit fit;
    fit.add(differences[i]);
    errors[pairs[i].reference->id] = fit.error();
  }
  return errors;
}

struct ScaleCandidate {
  Factor factor;
  std::string text;
  double value = 1;
};

// Returns 1, the product of each set of the mesh's own axes (over which the whole model lies), and its inverse. Several
// candidates may have one value: the draft names them all.
std::vector<ScaleCandidate> scale_candidates(const PlacementChoices& choices) {
  Axes axes = choices.factorings[0];
  std::stable_partition(axes.begin(), axes.end(),
                        [&](const Axis& axis) { return is_microbatch_axis(choices, axis.name); });
  std::vector<ScaleCandidate> candidates(1);
  for (std::size_t subset = 1; subset < std::size_t{1} << axes.size(); ++subset) {
    ScaleCandidate product;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if ((subset >> i & 1) == 0) continue;
      product.factor.numerator.push_back(axes[i].name);
      product.text += (product.text.empty() ? "" : "*") + axes[i].name;
      product.value *= static_cast<double>(axes[i].size);
    }
    ScaleCandidate inverse;
    inverse.factor.denominator = product.factor.numerator;
    inverse.text = "1/" + fmt::format("{}", fmt::join(inverse.factor.denominator, "/"));
    inverse.value = 1 / product.value;
    candidates.push_back(std::move(product));
    candidates.push_back(std::move(inverse));
  }
  return candidates;
}

// Makes a search for each gradient of an activation, with one hypothesis: the placement of its value.
std::vector<Search> gradient_searches(const std::map<SubjectKey, Decision>& decisions) {
  std::vector<Search> searches;
  for (const auto& [key, decision] : decisions) {
    if (decision.empty()) continue;
    const bool input = key.second == Kind::kInput;
    if (!input && key.second != Kind::kOutput) continue;
    Search search{key.first, input ? Kind::kGradInput : Kind::kGradOutput, decision.search->dtype, false, {}};
    search.hypotheses.push_back({follower_placements(decision.best().axes, key.second, search.kind), {}});
    searches.push_back(std::move(search));
  }
  return searches;
}

}  // namespace

void propose_pipeline(const Trace& trace, const Alignment* reference, Annotations& settings,
                      std::vector<DraftLine>& lines) {
  const Axes& axes = trace.mesh.axes;  // stages are an axis of every factoring, so of the mesh's own
  const int index = resolve(settings, trace.mesh).stage_axis.index;
  if (settings.pipeline || index < 0 || index >= static_cast<int>(axes.size())) return;
  const Axis& axis = axes[static_cast<std::size_t>(index)];
  if (axis.size == 1) return;
  std::vector<std::string> found;
  const auto numbers = numbers_by_stage(trace, axis);
  for (const auto& [prefix, stages] : numbers) {
    if (uses_local_numbers(stages)) found.push_back(prefix);
  }
  if (found.empty()) return;
  std::stable_sort(found.begin(), found.end(), [&](const std::string& a, const std::string& b) {
    return layer_count(numbers.at(a)) > layer_count(numbers.at(b));
  });
  const StageNumbers& stages = numbers.at(found[0]);
  std::vector<std::size_t> counts;
  for (const auto& of_stage : stages) counts.push_back(of_stage.size());
  settings.pipeline.emplace();
  settings.pipeline->axis = axis.name;
  settings.pipeline->layers = found[0];
  DraftLine line{fmt::format("pipeline: {{axis: {}, layers: {}}}", axis.name, found[0]), false, true,
                 fmt::format("the stages hold {} layers with the same numbers", fmt::join(counts, ", "))};
  if (reference != nullptr) {
    const ModelLayout layout = layout_of(*reference);
    const auto known = layout.layer_counts.find(found[0]);
    const std::int64_t layers = known == layout.layer_counts.end() ? 0 : known->second;
    line.certain = found.size() == 1 && layers == layer_count(stages);
    line.why += fmt::format("; the reference has {}", layers);
  }
  if (found.size() > 1) line.why += fmt::format("; so it is with {}", fmt::join(found.begin() + 1, found.end(), ", "));
  lines.push_back(std::move(line));
}

void propose_experts(const Trace& trace, const Alignment& reference, Annotations& settings,
                     std::vector<DraftLine>& lines) {
  if (settings.experts) return;
  const auto local = find_local_experts(reference, trace);
  if (!local) return;
  settings.experts = ExpertRule{local->axis, local->layers, {}};
  lines.push_back(
      {local->line(), local->told, true,
       fmt::format("each rank along {} numbers {} of the reference's {} from 0; {}", local->axis, local->own,
                   local->of_model,
                   local->told ? "they begin with these experts' bytes" : "their bytes do not tell which")});
}

void propose_microbatches(const Trace& trace, const Alignment& reference, bool order_is_given, Annotations& settings,
                          std::vector<DraftLine>& lines) {
  const ResolvedAnnotations resolved = resolve(settings, trace.mesh);
  const std::vector<ResolvedAxis>& axes = resolved.microbatch_axes;
  const bool on_one_rank =
      std::all_of(axes.begin(), axes.end(), [](const ResolvedAxis& axis) { return axis.size == 1; });
  if (order_is_given || on_one_rank) return;
  const RankTable ranks = rank_table_of(trace);
  if (microbatches_of(ranks, census_of(ranks, -1, -1, 0), resolved, layout_of(reference)).are_slices()) {
    settings.microbatches.order = MicrobatchOrder::kSlices;
    return;
  }
  Annotations blocked = settings;
  blocked.microbatches.order = MicrobatchOrder::kBlocked;
  const auto errors = input_errors(trace, reference, settings);
  const auto blocked_errors = input_errors(trace, reference, blocked);
  std::int64_t for_interleaved = 0, for_blocked = 0;
  for (const auto& [id, error] : errors) {
    const auto other = blocked_errors.find(id);
    if (other == blocked_errors.end()) continue;
    if (clearly_better(error, other->second, epsilon_of(Dtype::kBFloat16))) ++for_interleaved;
    if (clearly_better(other->second, error, epsilon_of(Dtype::kBFloat16))) ++for_blocked;
  }
  if (for_blocked <= for_interleaved) return;
  settings.microbatches.order = MicrobatchOrder::kBlocked;
  std::vector<std::string> names;
  for (const ResolvedAxis& axis : axes) names.push_back(axis.name);
  const std::string axis = names.size() == 1 ? names[0] : fmt::format("[{}]", fmt::join(names, ", "));
  lines.push_back({fmt::format("microbatches: {{axis: {}, order: blocked}}", axis), for_interleaved == 0, true,
                   fmt::format("{} inputs for interleaved, {} for blocked", for_interleaved, for_blocked)});
}

void propose_ties(const Trace& trace, const Alignment* reference, Annotations& settings,
                  std::vector<DraftLine>& lines) {
  if (!settings.tied.empty()) return;
  const Alignment aligned = align(trace, settings, reference == nullptr ? ModelLayout{} : layout_of(*reference));
  std::vector<std::string> words;
  for (const auto& [name, of] : find_shared_parameters(aligned, reference)) {
    settings.tied.push_back({name, of, {}});
    words.push_back(fmt::format("{}: {}", name, of));
  }
  if (words.empty()) return;
  lines.push_back({fmt::format("tied: {{{}}}", fmt::join(words, ", ")), reference != nullptr, true,
                   "the same bits before and after every step"});
}

std::optional<LossScaleObservation> propose_loss_scale(const Trace& trace, const Alignment& reference,
                                                       const std::map<SubjectKey, Decision>& decisions,
                                                       const PlacementChoices& choices, bool main_grads_fit,
                                                       Annotations& settings) {
  if (settings.loss_scale) return std::nullopt;
  std::vector<ScaleCandidate> candidates = scale_candidates(choices);
  std::vector<std::vector<double>> errors;  // by candidate, gradient
  for (const ScaleCandidate& candidate : candidates) {
    Annotations scaled = settings;
    scaled.loss_scale = candidate.factor;
    std::vector<Search> searches = gradient_searches(decisions);
    try_hypotheses({trace, scaled, reference}, searches, {Kind::kGradInput, Kind::kGradOutput});
    std::vector<double>& of_candidate = errors.emplace_back();
    for (const Search& search : searches) {
      const Fit& fit = search.hypotheses[0].fit;
      of_candidate.push_back(fit.tensors == 0 ? std::numeric_limits<double>::infinity() : fit.error());
    }
  }
  // Each gradient that clearly prefers one value votes for it.
  std::map<double, std::int64_t> votes;
  for (std::size_t i = 0; i < errors[0].size(); ++i) {
    std::size_t best = 0;
    for (std::size_t c = 1; c < candidates.size(); ++c) {
      if (errors[c][i] < errors[best][i]) best = c;
    }
    bool clear = is_near(errors[best][i]);
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      clear = clear && (candidates[c].value == candidates[best].value ||
                        clearly_better(errors[best][i], errors[c][i], epsilon_of(Dtype::kBFloat16)));
    }
    if (clear) ++votes[candidates[best].value];
  }
  if (votes.empty()) return std::nullopt;
  const auto winner =
      std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  LossScaleObservation seen;
  seen.value = winner->first;
  seen.certain = main_grads_fit && votes.size() == 1;
  for (const ScaleCandidate& candidate : candidates) {
    if (candidate.value != winner->first || candidate.text.empty()) continue;
    if (seen.factors.empty() && seen.certain) settings.loss_scale = candidate.factor;
    seen.factors.push_back(candidate.text);
  }
  std::int64_t others = -winner->second;
  for (const auto& [value, count] : votes) others += count;
  seen.why = fmt::format(
      "{} activation gradients are {:g} times the reference's, {} are not; {}", winner->second, winner->first, others,
      main_grads_fit ? "main gradients agree without it" : "main gradients are wrong, too: a bug looks the same");
  return seen;
}

}  // namespace ttrace
