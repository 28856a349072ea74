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
// draft falls back on shapes; a sum that somebody forgot looks like a tensor that is meant to be partial. So
// parameters and main gradients are never called partial, and where others are, that is a guess unless
// something later in the trace shows the sum to have been made.
#include "ttrace/annotate/propose.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "align/microbatch.h"
#include "align/pipeline.h"
#include "align/ranks.h"
#include "annotate/decision.h"
#include "annotate/parallelism.h"
#include "annotate/patterns.h"
#include "annotate/without_reference.h"
#include "ttrace/align/layout.h"
#include "ttrace/error.h"

namespace ttrace {
namespace {

// The kinds that are placed alike. The first is the lead, which a rule names; the others follow it.
const std::vector<std::vector<Kind>> kFamilies = {
    {Kind::kInput, Kind::kGradInput},
    {Kind::kOutput, Kind::kGradOutput},
    {Kind::kParam, Kind::kMainGrad, Kind::kParamDelta, Kind::kParamAfter, Kind::kParamGrad},
    {Kind::kScalar}};

// Kinds that a loss scale multiplies are tried later, once it is known.
const std::vector<Kind> kUnscaled = {Kind::kInput,    Kind::kOutput,     Kind::kParam,
                                     Kind::kMainGrad, Kind::kParamDelta, Kind::kParamAfter};
const std::vector<Kind> kScaled = {Kind::kGradInput, Kind::kGradOutput, Kind::kParamGrad, Kind::kScalar};

void require_whole_ranks(const Trace& trace, const Annotations& given, const Alignment* reference) {
  const Alignment alignment = align(trace, given, reference == nullptr ? ModelLayout{} : layout_of(*reference));
  for (const Finding& finding : alignment.findings) {
    if (finding.reason == Reason::kMissingRank || finding.reason == Reason::kIncompleteRank ||
        finding.reason == Reason::kDuplicateRank) {
      throw InputError(fmt::format("{}: {}; expected a whole trace", trace.directory.string(), finding.message));
    }
  }
}

PlacementChoices choices_for(const Trace& trace, const Annotations& given) {
  PlacementChoices choices;
  const int stages = stage_axis(trace.mesh, given);
  choices.factorings = factorings_of(trace.mesh);
  for (Axes& axes : choices.factorings) {
    std::erase_if(axes,
                  [&](const Axis& axis) { return axis.size == 1 || axis_index(trace.mesh, axis.name) == stages; });
  }
  choices.microbatch_axes = microbatch_axes(given, trace.mesh);
  // A parameter that all ranks hold whole needs an axis to say so.
  for (const bool microbatches : {true, false}) {
    for (const Axis& axis : choices.factorings[0]) {
      if (is_microbatch_axis(choices, axis.name) == microbatches) choices.spare_axis = axis.name;
    }
  }
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

std::vector<Search> searches_for(const Subjects& subjects, const PlacementChoices& choices) {
  std::vector<Search> searches;
  for (const auto& [key, subject] : subjects) {
    Search& search = searches.emplace_back(Search{key.first, key.second, subject.dtype, subject.in_microbatches, {}});
    for (Placements& axes : hypotheses_for(subject, key.second, choices)) {
      search.hypotheses.push_back({std::move(axes), {}});
    }
  }
  return searches;
}

using Decisions = std::map<SubjectKey, Decision>;

void decide_all(const std::vector<Search>& searches, const std::vector<Kind>& kinds, Decisions& decisions) {
  for (const Search& search : searches) {
    if (std::find(kinds.begin(), kinds.end(), search.kind) == kinds.end()) continue;
    decisions[{search.pattern, search.kind}] = decide(search);
  }
}

const Decision* find_decision(const Decisions& decisions, const std::string& pattern, Kind kind) {
  const auto found = decisions.find({pattern, kind});
  return found == decisions.end() || found->second.empty() ? nullptr : &found->second;
}

// Lets the followers of each lead rule out hypotheses that its own values could not.
void narrow_all(Decisions& decisions, const PlacementChoices& choices) {
  for (auto& [key, decision] : decisions) {
    for (const std::vector<Kind>& family : kFamilies) {
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

// Makes a guess of each `partial` line, unless `made_later`: a later tensor shows that the program makes the sum. By
// its values alone, a tensor that is meant to be partial looks like one whose sum the program forgot.
void doubt_sums(std::vector<DraftLine>& lines, bool made_later) {
  for (DraftLine& line : lines) {
    if (!line.text.ends_with(": partial")) continue;
    line.certain = line.certain && made_later;
    line.why += made_later ? "; the main gradient is whole" : "; a forgotten sum looks the same";
  }
}

// Writes a rule, or a remark, for each pattern and family of kinds.
class Composer {
 public:
  Composer(const Subjects& subjects, const Decisions& decisions, const PlacementChoices& choices)
      : subjects_(subjects), decisions_(decisions), choices_(choices) {}

  // Returns the rules in order of execution, those of one pattern together.
  std::vector<DraftRule> run() {
    std::map<std::string, std::uint64_t> order;
    for (const auto& [key, subject] : subjects_) {
      const auto found = order.try_emplace(key.first, subject.order).first;
      found->second = std::min(found->second, subject.order);
    }
    std::vector<std::pair<std::uint64_t, std::string>> patterns;
    for (const auto& [pattern, first] : order) patterns.emplace_back(first, pattern);
    std::sort(patterns.begin(), patterns.end());
    for (const auto& [first, pattern] : patterns) {
      for (const std::vector<Kind>& family : kFamilies) add_family(pattern, family);
    }
    return std::move(rules_);
  }

 private:
  void add_family(const std::string& pattern, const std::vector<Kind>& family) {
    const auto lead =
        std::find_if(family.begin(), family.end(), [&](Kind kind) { return find_decision(decisions_, pattern, kind); });
    if (lead == family.end()) return add_undetermined(pattern, family);
    const Decision& decision = *find_decision(decisions_, pattern, *lead);
    if (*lead == Kind::kScalar && only_replicates(decision.best().axes)) return;  // needs no rule
    DraftRule rule{pattern, *lead, draft_lines(decision, choices_), {}};
    if (family[0] == Kind::kParam && *lead != Kind::kParamGrad) rule.kind.reset();
    doubt_sums(rule.lines, false);
    rules_.push_back(std::move(rule));
    for (auto kind = lead + 1; kind != family.end(); ++kind) add_follower(pattern, decision, *lead, *kind);
  }

  static bool only_replicates(const Placements& placements) {
    return std::all_of(placements.begin(), placements.end(),
                       [](const AxisPlacement& axis) { return axis.placement == Placement::kReplicate; });
  }

  // Adds a rule for a follower that is not placed as its lead is, and a remark for one that is, but is far from the
  // reference.
  void add_follower(const std::string& pattern, const Decision& lead, Kind lead_kind, Kind kind) {
    const Decision* decision = find_decision(decisions_, pattern, kind);
    if (decision == nullptr) return;
    if (is_plausible(*decision, follower_placements(named_placements(lead, choices_), lead_kind, kind), choices_)) {
      if (decision->near_reference || !lead.near_reference) return;
      rules_.push_back(
          {pattern,
           kind,
           {},
           fmt::format("lies so by its shapes, yet is far from the reference (rel_err {:.2g} at best): noise, or a bug",
                       smallest_error(*decision))});
      return;
    }
    DraftRule rule{pattern, kind, draft_lines(*decision, choices_), {}};
    const Decision* main_grad = find_decision(decisions_, pattern, Kind::kMainGrad);
    doubt_sums(rule.lines, kind == Kind::kParamGrad && main_grad != nullptr && main_grad->near_reference);
    rules_.push_back(std::move(rule));
  }

  static double smallest_error(const Decision& decision) {
    double error = decision.viable[0]->fit.error();
    for (const Hypothesis* hypothesis : decision.viable) error = std::min(error, hypothesis->fit.error());
    return error;
  }

  void add_undetermined(const std::string& pattern, const std::vector<Kind>& family) {
    for (const Kind kind : family) {
      const auto found = subjects_.find({pattern, kind});
      if (found == subjects_.end() || kind == Kind::kScalar) continue;
      const Subject& subject = found->second;
      std::string why = "not determined: ";
      if (subject.reference.empty()) {
        why += "the reference has no such tensor";
      } else if (subject.local.ragged || subject.reference.ragged) {
        why += "tensors of this name differ in their number of dimensions";
      } else {
        why += fmt::format("no placement of shards of {} makes up the reference's {}", to_string(subject.local.largest),
                           to_string(subject.reference.largest));
      }
      const bool is_parameter = is_parameter_kind(kind) && kind != Kind::kParamGrad;
      rules_.push_back({pattern, is_parameter ? std::nullopt : std::optional(kind), {}, why});
      return;
    }
  }

  const Subjects& subjects_;
  const Decisions& decisions_;
  const PlacementChoices& choices_;
  std::vector<DraftRule> rules_;
};

std::vector<DraftRule> propose_by_reference(const Trace& trace, const Annotations& given, const Alignment& reference,
                                            Subjects subjects, const PlacementChoices& choices, Annotations& settings,
                                            std::vector<DraftLine>& parallelism) {
  propose_microbatches(trace, reference, given.microbatches.order.has_value(), settings, parallelism);
  add_reference(subjects, reference);
  std::vector<Search> searches = searches_for(subjects, choices);
  Decisions decisions;
  try_hypotheses({trace, settings, reference}, searches, kUnscaled);
  decide_all(searches, kUnscaled, decisions);
  narrow_all(decisions, choices);
  propose_loss_scale(trace, reference, decisions, choices, main_grads_fit(decisions), settings, parallelism);
  try_hypotheses({trace, settings, reference}, searches, kScaled);
  decide_all(searches, kScaled, decisions);
  narrow_all(decisions, choices);
  return Composer(subjects, decisions, choices).run();
}

std::vector<DraftRule> propose_without_reference(const Subjects& subjects, const PlacementChoices& choices) {
  std::vector<std::pair<std::uint64_t, DraftRule>> rules;
  for (const auto& [key, subject] : subjects) {
    const Kind kind = key.second;
    // The other kinds follow these.
    if (kind != Kind::kInput && kind != Kind::kOutput && kind != Kind::kParam) continue;
    DraftRule rule = propose_rule_without_reference(key, subject, choices);
    rule.pattern = key.first;
    if (kind != Kind::kParam) rule.kind = kind;
    rules.emplace_back(subject.order, std::move(rule));
  }
  std::stable_sort(rules.begin(), rules.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<DraftRule> ordered;
  for (auto& [order, rule] : rules) ordered.push_back(std::move(rule));
  return ordered;
}

// Moves the rules of one pattern next to the first of them.
void group_by_pattern(std::vector<DraftRule>& rules) {
  std::map<std::string, std::size_t> first;
  for (const DraftRule& rule : rules) first.try_emplace(rule.pattern, first.size());
  std::stable_sort(rules.begin(), rules.end(),
                   [&](const DraftRule& a, const DraftRule& b) { return first.at(a.pattern) < first.at(b.pattern); });
}

}  // namespace

Draft propose(const Trace& trace, const Annotations& given, const Alignment* reference) {
  require_whole_ranks(trace, given, reference);
  Draft draft;
  Annotations settings = given;
  propose_pipeline(trace, reference, settings, draft.parallelism);
  const PlacementChoices choices = choices_for(trace, settings);
  const Subjects subjects = unplaced_subjects(trace, settings);
  draft.rules = reference == nullptr
                    ? propose_without_reference(subjects, choices)
                    : propose_by_reference(trace, given, *reference, subjects, choices, settings, draft.parallelism);
  merge_members(draft.rules);
  shorten_patterns(trace, given, draft.rules);
  group_by_pattern(draft.rules);
  return draft;
}

}  // namespace ttrace
