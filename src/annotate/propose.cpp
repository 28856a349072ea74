// Drafting is trial, measured by the stages that a check has. A hypothesis gives each tensor of a pattern
// (`layers.*.mlp` input: the layers of a model are alike) a placement; `align` puts the shards together in
// that way, or finds that they do not fit, and `compare` says how far the result is from the reference. The
// n-th hypotheses of all patterns are tried at once, with one alignment of the whole trace.
//
// What can be tried follows from the shapes: a dimension in which a shard is not as large as the reference is
// split, by axes whose sizes multiply to the ratio, and no other is. That leaves a handful. One is certain
// when it comes near the reference and every other is worse by more than the margin of a tolerance. Where the
// values of a tensor tell nothing (zeros), a tensor that is placed as it is decides: for a bias or an output,
// its gradient.
//
// A program that is wrong is measured as it is. Downstream of a bug nothing comes near the reference, and the
// draft falls back on shapes; a sum that somebody forgot looks like a tensor that is meant to be partial, one made
// twice like a legal factor. So parameters and main gradients are never called partial, and where others are, that
// does not count (it is a comment, for a person) unless something later in the trace shows the sum to have been made:
// a main gradient that is whole, or an activation that is as near the reference without a sum (sum_witness.h).
//
// Candidates are observed one by one, and what they show is put together (combine.cpp).
#include "annotate/propose.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "align/shard_mapping.h"
#include "annotate/combine.h"
#include "annotate/decision.h"
#include "annotate/parallelism.h"
#include "annotate/patterns.h"
#include "annotate/sequence.h"
#include "annotate/sum_witness.h"
#include "annotate/without_reference.h"
#include "base/error.h"
#include "base/layout.h"
#include "base/lookup.h"
#include "base/tensor_name.h"
#include "identify/packed.h"
#include "identify/program.h"
#include "identify/resolved_annotations.h"

namespace ttrace {
namespace {

// Kinds that a loss scale multiplies are tried later, once it is known.
const std::vector<Kind> kUnscaled = {Kind::kInput,    Kind::kOutput,     Kind::kParam,
                                     Kind::kMainGrad, Kind::kParamDelta, Kind::kParamAfter};
const std::vector<Kind> kScaled = {Kind::kGradInput, Kind::kGradOutput, Kind::kParamGrad, Kind::kScalar};

void require_whole_ranks(const Trace& trace, const Alignment& alignment) {
  for (const Finding& finding : alignment.findings) {
    if (finding.reason == Reason::kMissingRank || finding.reason == Reason::kIncompleteRank ||
        finding.reason == Reason::kDuplicateRank) {
      throw InputError(fmt::format("{}: {}; expected a whole trace", trace.directory.string(), finding.message));
    }
  }
}

// Leaves out the numbers that each rank has of its own, and marks packed sequences, whose rows lie as these say.
void leave_out_own_numbers(const Alignment& alignment, Subjects& subjects) {
  for (const TensorId& id : alignment.local) {
    subjects.erase({pattern_of(id.name), id.kind});
    const auto rows = rows_of_packed(id);
    if (!rows) continue;
    const LogicalTensor* tensor = find_tensor(alignment, *rows);
    const bool is_placed =
        tensor == nullptr || std::any_of(tensor->deduced.begin(), tensor->deduced.end(),
                                         [](const AxisPlacement& axis) { return find_layout(axis.layout) == nullptr; });
    if (!is_placed) continue;
    for (const Kind kind : {id.kind, id.kind == Kind::kInput ? Kind::kGradInput : Kind::kGradOutput}) {
      const auto found = subjects.find({pattern_of(rows->name), kind});
      if (found != subjects.end()) found->second.packed = true;
    }
  }
}

PlacementChoices choices_for(const Trace& trace, const Annotations& given) {
  PlacementChoices choices;
  const ResolvedAnnotations resolved = resolve(given, trace.mesh);
  choices.factorings = distinct_factorings(trace.mesh);
  if (const int stages = resolved.stage_axis.index; stages >= 0) {
    const std::string& name = resolved.axes[static_cast<std::size_t>(stages)].name;
    for (Axes& axes : choices.factorings) std::erase_if(axes, [&](const Axis& axis) { return axis.name == name; });
  }
  choices.microbatch_axes = microbatch_axes(given, trace.mesh);
  for (const std::string& name : layout_names()) {
    if (find_layout(name)->options.empty()) choices.layouts.push_back(name);
  }
  std::stable_partition(choices.layouts.begin(), choices.layouts.end(),
                        [](const std::string& name) { return name == "contiguous"; });
  return choices;
}

void add_reference(Subjects& subjects, const Alignment& reference) {
  for (const auto& [id, tensor] : reference.tensors) {
    const auto found = subjects.find({pattern_of(id.name), id.kind});
    if (found == subjects.end()) continue;
    Subject& subject = found->second;
    subject.order = subject.reference.empty() ? tensor.order : std::min(subject.order, tensor.order);
    subject.reference.add(tensor.shape);
  }
}

// True for a pattern of one of the experts that a rule spreads over an axis.
bool is_of_expert(std::string pattern, const ExpertRule& rule) {
  std::replace(pattern.begin(), pattern.end(), '*', '0');
  return layer_number(pattern, rule.layers).has_value();
}

// Leaves out the axis that the experts lie along: a rule of one names no place on it.
PlacementChoices choices_for_expert(PlacementChoices choices, const ExpertRule& rule) {
  for (Axes& axes : choices.factorings) std::erase_if(axes, [&](const Axis& axis) { return axis.name == rule.axis; });
  return choices;
}

std::vector<Search> searches_for(const Subjects& subjects, const PlacementChoices& choices,
                                 const std::optional<ExpertRule>& experts) {
  std::vector<Search> searches;
  for (const auto& [key, subject] : subjects) {
    Search& search = searches.emplace_back(Search{key.first, key.second, subject.dtype, subject.in_microbatches, {}});
    const bool is_expert = experts && is_of_expert(key.first, *experts);
    const PlacementChoices own = is_expert ? choices_for_expert(choices, *experts) : choices;
    for (Placements& axes : hypotheses_for(subject, key.second, own)) {
      search.hypotheses.push_back({std::move(axes), {}});
    }
  }
  return searches;
}

void decide_all(const std::vector<Search>& searches, const std::vector<Kind>& kinds, Decisions& decisions) {
  for (const Search& search : searches) {
    if (std::find(kinds.begin(), kinds.end(), search.kind) == kinds.end()) continue;
    decisions[{search.pattern, search.kind}] = decide(search);
  }
}

// Lets the followers of each lead rule out hypotheses that its own values could not.
void narrow_all(Decisions& decisions, const PlacementChoices& choices) {
  for (auto& [key, decision] : decisions) {
    for (const std::vector<Kind>& family : kind_families()) {
      if (family[0] != key.second) continue;
      for (const Kind kind : family) {
        const Decision* follower = find_decision(decisions, key.first, kind);
        if (kind != key.second && kind != Kind::kParamGrad && follower != nullptr) {
          narrow(decision, key.second, *follower, kind, choices);
        }
      }
    }
  }
}

bool main_grads_fit(const Decisions& decisions) {
  bool any = false;
  for (const auto& [key, decision] : decisions) {
    if (key.second != Kind::kMainGrad || decision.empty()) continue;
    if (!decision.near_reference) return false;
    any = true;
  }
  return any;
}

double smallest_error(const Decision& decision) {
  double error = decision.viable[0]->fit.error();
  for (const Hypothesis* hypothesis : decision.viable) error = std::min(error, hypothesis->fit.error());
  return error;
}

// Writes down what was decided about each pattern and family of kinds.
class Observer {
 public:
  Observer(const Subjects& subjects, const Decisions& decisions, const PlacementChoices& choices,
           const Alignment& reference)
      : subjects_(subjects), decisions_(decisions), choices_(choices), witness_(subjects, decisions, reference) {}

  Observations run() {
    std::set<std::string> patterns;
    for (const auto& [key, subject] : subjects_) patterns.insert(key.first);
    for (const std::string& pattern : patterns) {
      for (const std::vector<Kind>& family : kind_families()) add_family(pattern, family);
    }
    return std::move(observations_);
  }

 private:
  SubjectObservation& add(const std::string& pattern, Kind kind) {
    SubjectObservation& seen = observations_[{pattern, kind}];
    seen.order = subjects_.at({pattern, kind}).order;
    return seen;
  }

  void observe(const std::string& pattern, Kind kind, const Decision& decision) {
    SubjectObservation& seen = add(pattern, kind);
    seen.axes = observe_axes(decision, choices_);
    witness_.doubt_sums({pattern, kind}, decision, seen.axes);
  }

  void add_family(const std::string& pattern, const std::vector<Kind>& family) {
    const auto lead =
        std::find_if(family.begin(), family.end(), [&](Kind kind) { return find_decision(decisions_, pattern, kind); });
    if (lead == family.end()) return add_undetermined(pattern, family);
    observe(pattern, *lead, *find_decision(decisions_, pattern, *lead));
    for (auto kind = lead + 1; kind != family.end(); ++kind) add_follower(pattern, *lead, *kind);
  }

  // A follower that is placed as its lead is gets a remark where it is far from the reference.
  void add_follower(const std::string& pattern, Kind lead_kind, Kind kind) {
    const Decision& lead = *find_decision(decisions_, pattern, lead_kind);
    const Decision* decision = find_decision(decisions_, pattern, kind);
    if (decision == nullptr) return;
    if (!is_plausible(*decision, follower_placements(named_placements(lead, choices_), lead_kind, kind), choices_)) {
      return observe(pattern, kind, *decision);
    }
    SubjectObservation& seen = add(pattern, kind);
    seen.follows = true;
    for (const AxisObservation& axis : observations_.at({pattern, lead_kind}).axes) {
      seen.axes.push_back(axis);
      seen.axes.back().placement = follower_placements({axis.placement}, lead_kind, kind)[0];
    }
    if (decision->near_reference || !lead.near_reference) return;
    seen.remark =
        fmt::format("lies so by its shapes, yet is far from the reference (rel_err {:.2g} at best): noise, or a bug",
                    smallest_error(*decision));
  }

  void add_undetermined(const std::string& pattern, const std::vector<Kind>& family) {
    for (const Kind kind : family) {
      const auto found = subjects_.find({pattern, kind});
      if (found == subjects_.end() || kind == Kind::kScalar) continue;
      const Subject& subject = found->second;
      std::string why = "not determined: ";
      if (subject.packed) {
        why = "packed sequences lie as the numbers beside them say, which no rule does";
      } else if (subject.reference.empty()) {
        why += "the reference has no such tensor";
      } else if (subject.local.ragged || subject.reference.ragged) {
        why += "tensors of this name differ in their number of dimensions";
      } else {
        why += fmt::format("no placement of shards of {} makes up the reference's {}", to_string(subject.local.largest),
                           to_string(subject.reference.largest));
      }
      add(pattern, kind).remark = why;
      return;
    }
  }

  const Subjects& subjects_;
  const Decisions& decisions_;
  const PlacementChoices& choices_;
  const SumWitness witness_;
  Observations observations_;
};

void observe_by_reference(const Trace& trace, const Annotations& given, const Alignment& reference, Subjects subjects,
                          const PlacementChoices& choices, Annotations& settings, ObservedCandidate& candidate) {
  propose_microbatches(trace, reference, given.microbatches.order.has_value(), settings, candidate.parallelism);
  add_reference(subjects, reference);
  std::vector<Search> searches = searches_for(subjects, choices, settings.experts);
  Decisions decisions;
  try_hypotheses({trace, settings, reference}, searches, kUnscaled);
  decide_all(searches, kUnscaled, decisions);
  narrow_all(decisions, choices);
  candidate.loss_scale = propose_loss_scale(trace, reference, decisions, choices, main_grads_fit(decisions), settings);
  try_hypotheses({trace, settings, reference}, searches, kScaled);
  decide_all(searches, kScaled, decisions);
  narrow_all(decisions, choices);
  candidate.tensors = Observer(subjects, decisions, choices, reference).run();
  name_sequence_splits(candidate.tensors, subjects, trace.mesh, reference);
}

ObservedCandidate observe(const Trace& trace, const Annotations& annotations, const Alignment* reference) {
  const Annotations given = with_program_words(annotations, trace);
  const Alignment alignment = align(trace, given, reference == nullptr ? ModelLayout{} : layout_of(*reference));
  require_whole_ranks(trace, alignment);
  ObservedCandidate candidate{trace.directory.string(), trace.mesh, {}, {}, {}};
  Annotations settings = given;
  propose_pipeline(trace, reference, settings, candidate.parallelism);
  if (reference != nullptr) propose_experts(trace, *reference, settings, candidate.parallelism);
  propose_ties(trace, reference, settings, candidate.parallelism);
  const PlacementChoices choices = choices_for(trace, settings);
  Subjects subjects = unplaced_subjects(trace, settings);
  leave_out_own_numbers(alignment, subjects);
  if (reference != nullptr) {
    observe_by_reference(trace, given, *reference, subjects, choices, settings, candidate);
    return candidate;
  }
  for (const auto& [key, subject] : subjects) {
    // The other kinds follow these.
    if (key.second != Kind::kInput && key.second != Kind::kOutput && key.second != Kind::kParam) continue;
    candidate.tensors[key] = observe_without_reference(key, subject, choices);
  }
  return candidate;
}

std::vector<std::string> axes_of(std::span<const Trace* const> candidates) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const Trace* trace : candidates) {
    for (const Axes& axes : distinct_factorings(trace->mesh)) {
      for (const Axis& axis : axes) add(axis.name);
    }
    for (const auto& [alias, axis] : trace->mesh.aliases) {
      if (size_of_axis(trace->mesh, axis) > 1) add(alias);
    }
  }
  return names;
}

}  // namespace

const std::vector<std::vector<Kind>>& kind_families() {
  static const std::vector<std::vector<Kind>> families = {
      {Kind::kInput, Kind::kGradInput},
      {Kind::kOutput, Kind::kGradOutput},
      {Kind::kParam, Kind::kMainGrad, Kind::kParamDelta, Kind::kParamAfter, Kind::kParamGrad},
      {Kind::kScalar}};
  return families;
}

Draft propose(std::span<const Trace* const> candidates, const Annotations& given, const Alignment* reference) {
  std::vector<ObservedCandidate> observed;
  for (const Trace* trace : candidates) observed.push_back(observe(*trace, given, reference));
  name_sequence_splits(observed);
  Draft draft;
  draft.known_axes = axes_of(candidates);
  combine(observed, draft);
  choose_patterns(candidates, given, draft);
  return draft;
}

}  // namespace ttrace
