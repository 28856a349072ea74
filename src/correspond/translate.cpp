#include "correspond/translate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <set>

#include "align/holders.h"
#include "base/describe.h"
#include "base/error.h"
#include "base/tensor_name.h"
#include "correspond/groups.h"
#include "correspond/made_of.h"
#include "correspond/sums.h"
#include "merge/region.h"

namespace ttrace {
namespace {

// Sizes of axes that hold everywhere, by the file's `sizes`. The first alignment that has a tensor tells.
AxisSizes told_sizes(const Correspondence& correspondence, const std::vector<const Alignment*>& alignments) {
  AxisSizes sizes;
  std::vector<bool> used(correspondence.sizes.size());
  for (std::size_t i = 0; i < correspondence.sizes.size(); ++i) {
    const SizeRule& rule = correspondence.sizes[i];
    if (!rule.tensor && rule.number > 0) sizes[rule.name] = rule.number;  // else there is no configuration that says it
  }
  for (const Alignment* alignment : alignments) {
    for (std::size_t i = 0; i < correspondence.sizes.size(); ++i) {
      const SizeRule& rule = correspondence.sizes[i];
      if (!rule.tensor || used[i]) continue;
      for (const auto& [id, tensor] : alignment->tensors) {
        const TensorName name(id.name);
        if (name.member != rule.tensor->member() || !rule.tensor->match(name.path)) continue;
        SizeEquations equations(sizes);
        if (!equations.add(rule.shape, tensor.shape) || !equations.solve()) {
          throw InputError(
              fmt::format("{}: {} has the shape {}, which is not what is said of it; expected another "
                          "pattern",
                          to_string(rule.source), to_string(id), to_string(tensor.shape)));
        }
        sizes = equations.sizes();
        std::erase_if(sizes, [](const auto& axis) { return axis.first.starts_with("..."); });  // of this shape alone
        used[i] = true;
        break;
      }
    }
  }
  return sizes;
}

PlacedTensors placed(const CounterpartGroup& group, std::size_t side, const Alignment& alignment) {
  PlacedTensors tensors;
  for (const auto& [place, id] : group.sides[side]) {
    tensors.emplace_back(PatternTensor{place.first, place.second}, &alignment.tensors.at(id));
  }
  return tensors;
}

// Every place on a side of a rule, for each value of the axes that its names number.
std::vector<PatternTensor> places_of(const CorrespondenceRule& rule, std::size_t side, const AxisSizes& sizes) {
  std::vector<PatternTensor> places;
  const std::set<std::string> own = rule.own_axes(side);
  for (std::size_t k = 0; k < rule.names[side].size(); ++k) {
    std::vector<AxisSizes> all = {{}};
    for (const std::string& axis : own) {
      const auto size = sizes.find(axis);
      if (size == sizes.end()) return {};
      std::vector<AxisSizes> longer;
      for (const AxisSizes& one : all) {
        for (std::int64_t i = 0; i < size->second; ++i) longer.emplace_back(one)[axis] = i;
      }
      all = std::move(longer);
    }
    for (AxisSizes& fixed : all) places.push_back({k, std::move(fixed)});
  }
  return places;
}

TensorId id_of(const SideNames& names, const GroupKey& key, const PatternTensor& place) {
  TensorId id = key.id;
  id.name = names.name_of(key, place);
  return id;
}

std::string describe_shapes(const PlacedTensors& tensors) {
  std::vector<std::string> words;
  for (const auto& [place, tensor] : tensors) {
    words.push_back(fmt::format("{} {}", printable(tensor->id.name), to_string(tensor->shape)));
  }
  return comma_list(words);
}

Finding mismatch(const TensorId& id, Reason reason, std::string what, const PlacedTensors& sources) {
  Finding finding;
  finding.id = id;
  finding.verdict = Verdict::kFail;
  finding.reason = reason;
  finding.message = fmt::format("{}: {}", to_string(id), what);
  std::set<std::int32_t> ranks;
  for (const auto& [place, tensor] : sources) {
    for (const std::int32_t rank : ranks_holding(*tensor)) ranks.insert(rank);
  }
  finding.ranks.assign(ranks.begin(), ranks.end());
  return finding;
}

// Translates a candidate group by group, and says what is left.
class CandidateTranslator {
 public:
  CandidateTranslator(const Correspondence& correspondence, std::size_t reference_side, const AlignedTrace& reference,
                      const AlignedTrace& candidate)
      : correspondence_(correspondence),
        candidate_(candidate.alignment),
        reference_names_(correspondence, reference_side, *reference.trace),
        candidate_names_(correspondence, 1 - reference_side, *candidate.trace),
        reference_(summed_as_in_candidate(reference_names_, reference.alignment, candidate_names_, candidate_)),
        sizes_(told_sizes(correspondence, {&reference_, &candidate_})) {
    add_to_groups(reference_names_, reference_, groups_);
    add_to_groups(candidate_names_, candidate_, groups_);
  }

  Translation run() {
    result_.reference = reference_;
    result_.candidate = Alignment{};
    result_.candidate.aliases = candidate_.aliases;
    result_.candidate.slices = candidate_.slices;
    result_.candidate.notes = candidate_.notes;
    result_.candidate.not_seen.add_design_of(candidate_.not_seen);
    for (const auto& [key, group] : groups_) translate_group(key, group);
    translate_findings();
    settle_reference();
    settle_candidate();
    note_unused_rules();
    for (const auto& [id, sources] : result_.recorded_as) {
      if (!is_parameter_kind(id.kind)) continue;
      for (const TensorId& source : sources) {
        std::vector<std::string>& names = result_.parameters[source.name];
        if (std::find(names.begin(), names.end(), id.name) == names.end()) names.push_back(id.name);
      }
    }
    return std::move(result_);
  }

 private:
  void translate_group(const GroupKey& key, const CounterpartGroup& group) {
    const PlacedTensors targets = placed(group, reference_names_.side(), reference_);
    const PlacedTensors sources = placed(group, candidate_names_.side(), candidate_);
    if (targets.empty() || sources.empty()) return;
    const FittedPattern known =
        fit(*pattern_of(correspondence_, key), candidate_names_.side(), sizes_, sources, targets);
    if (known.fits) require_known_sizes(key, *known.how);
    for (const auto& [place, target] : targets) {
      const std::string where = to_string(correspondence_.rules[key.rule].source);
      if (!known.fits) {
        add_finding(mismatch(target->id, Reason::kShapeMismatch,
                             fmt::format("{}: '{}' does not fit: the reference has {}, the candidate {}", where,
                                         known.how->pattern.text, describe_shapes(targets), describe_shapes(sources)),
                             sources),
                    sources);
        continue;
      }
      const std::vector<Source> parts = sources_of(*known.how, place, sources);
      if (parts.empty()) continue;
      const LogicalTensor& first = *parts.front().tensor;
      const bool alike = std::all_of(parts.begin(), parts.end(), [&](const Source& part) {
        return part.tensor->dtype == first.dtype && part.tensor->scale == first.scale;
      });
      const bool rows =
          std::any_of(parts.begin(), parts.end(), [](const Source& part) { return part.tensor->rows.has_value(); }) ||
          target->rows;
      if (!alike) {
        add_finding(
            mismatch(target->id, Reason::kDtypeMismatch,
                     "what it is made of in the candidate has several dtypes, or several declared factors", sources),
            sources);
        continue;
      }
      if (rows && (parts.size() > 1 || !keeps_rows(*known.how))) {
        add_finding(mismatch(target->id, Reason::kShapeMismatch,
                             fmt::format("{}: '{}' moves the rows of routed tokens; expected a pattern that keeps them",
                                         where, known.how->pattern.text),
                             sources),
                    sources);
        continue;
      }
      const Shape shape = shape_of_made(*known.how, place);
      if (shape != target->shape) {  // without its padding
        result_.reference.tensors.at(target->id) = region_of(*target, whole_box(shape));
      }
      keep(made_of(target->id, known.how, parts, place));
      for (const Source& part : parts) note_use(part.tensor->id, target->id);
    }
  }

  void require_known_sizes(const GroupKey& key, const Rearrangement& how) const {
    const std::string axis = unknown_axis(how);
    if (axis.empty()) return;
    throw InputError(
        fmt::format("{}: '{}': the shapes do not tell the size of '{}'; expected it under `sizes`, "
                    "or --set {}=N",
                    to_string(correspondence_.rules[key.rule].source), how.pattern.text, axis, axis));
  }

  void keep(LogicalTensor tensor) {
    const TensorId id = tensor.id;
    const auto found = result_.candidate.tensors.find(id);
    if (found == result_.candidate.tensors.end()) {
      result_.candidate.tensors.emplace(id, std::move(tensor));
      return;
    }
    const LogicalTensor& first = found->second;
    if (first.shape == tensor.shape && first.dtype == tensor.dtype && first.scale == tensor.scale) {
      add_copies(found->second, std::move(tensor));
      return;
    }
    add_finding(
        mismatch(id, Reason::kDtypeMismatch,
                 "two rules make it of tensors of the candidate that differ in shape, dtype or declared factor", {}),
        {});
  }

  void note_use(const TensorId& source, const TensorId& target) {
    used_.insert(source);
    std::vector<TensorId>& sources = result_.recorded_as[target];
    if (std::find(sources.begin(), sources.end(), source) == sources.end()) sources.push_back(source);
  }

  void add_finding(Finding finding, const PlacedTensors& sources) {
    for (const auto& [place, tensor] : sources) note_use(tensor->id, finding.id);
    result_.candidate.findings.push_back(std::move(finding));
  }

  // A scalar that both have, and that no rule names.
  bool are_of_one_name(const TensorId& id) const {
    return reference_names_.goes_by_name(id) && candidate_names_.goes_by_name(id) && reference_.tensors.contains(id) &&
           candidate_.tensors.contains(id);
  }

  // The reference's tensors that correspond to a tensor of the candidate, which need not be whole.
  std::vector<TensorId> counterparts_of(const TensorId& candidate) const {
    std::set<TensorId> ids;
    for (const Claim& claim : candidate_names_.claims(candidate)) {
      const auto group = groups_.find(claim.key);
      if (group == groups_.end()) continue;
      for (const auto& [place, id] : group->second.sides[reference_names_.side()]) ids.insert(id);
    }
    return {ids.begin(), ids.end()};
  }

  void translate_findings() {
    for (const Finding& finding : candidate_.findings) {
      if (finding.id.name.empty() || are_of_one_name(finding.id)) {
        result_.candidate.findings.push_back(finding);
        continue;
      }
      const std::vector<TensorId> ids = counterparts_of(finding.id);
      if (ids.empty() && candidate_names_.is_named(finding.id)) result_.candidate.findings.push_back(finding);
      if (ids.empty() && !candidate_names_.is_named(finding.id)) result_.only_candidate.push_back({finding.id, false});
      for (const TensorId& id : ids) {
        Finding& renamed = result_.candidate.findings.emplace_back(finding);
        renamed.id = id;
        result_.recorded_as[id] = {finding.id};
        add_not_seen(finding.id, id);
      }
    }
    for (const TensorId& local : candidate_.local) {
      for (const TensorId& id : counterparts_of(local)) {
        result_.candidate.local.insert(id);
        result_.reference.tensors.erase(id);
      }
    }
  }

  // The candidate says of `recorded` that it could not record it: then so it is of `id`.
  bool add_not_seen(const TensorId& recorded, const TensorId& id) {
    const NotSeenTensors::Reason* reason = candidate_.not_seen.reason_of(recorded);
    if (reason == nullptr) return false;
    NotSeen statement;
    statement.reason = reason->text;
    statement.by_design = reason->by_design;
    statement.kinds = {id.kind};
    statement.iterations = {id.iteration};
    result_.candidate.not_seen.add_tensor(statement, id.name);
    return true;
  }

  bool is_optional(const std::vector<Claim>& claims, std::size_t other_side) const {
    return std::all_of(claims.begin(), claims.end(), [&](const Claim& claim) {
      return correspondence_.rules[claim.key.rule].optional && !has_any(claim.key.rule, other_side);
    });
  }

  bool has_any(std::size_t rule, std::size_t side) const {
    return std::any_of(groups_.begin(), groups_.end(),
                       [&](const auto& item) { return item.first.rule == rule && !item.second.sides[side].empty(); });
  }

  // Takes out what has no counterpart, and finds out of what is missing whether it could not be recorded.
  void settle_reference() {
    for (const auto& [id, tensor] : reference_.tensors) {
      if (are_of_one_name(id) || result_.candidate.tensors.contains(id)) continue;
      const std::vector<Claim> claims = reference_names_.claims(id);
      if (is_optional(claims, candidate_names_.side())) {
        result_.only_reference.push_back({id, is_floating(tensor.dtype)});
        result_.reference.tensors.erase(id);
        continue;
      }
      for (const Claim& claim : claims) {
        const CorrespondenceRule& rule = correspondence_.rules[claim.key.rule];
        for (const PatternTensor& place : places_of(rule, candidate_names_.side(), {})) {
          add_not_seen(id_of(candidate_names_, claim.key, place), id);
        }
      }
    }
    std::erase_if(result_.reference.findings, [&](const Finding& finding) {
      const bool alone = !finding.id.name.empty() && !are_of_one_name(finding.id) &&
                         is_optional(reference_names_.claims(finding.id), candidate_names_.side());
      if (alone) result_.only_reference.push_back({finding.id, false});
      return alone;
    });
  }

  // Tensors that the rules name and the reference lacks are missing there, under the name that they would have.
  void settle_candidate() {
    for (const auto& [id, tensor] : candidate_.tensors) {
      if (used_.contains(id)) continue;
      LogicalTensor kept = tensor;
      if (are_of_one_name(id)) {
        result_.candidate.tensors.emplace(id, std::move(kept));
        continue;
      }
      const std::vector<Claim> claims = candidate_names_.claims(id);
      if (is_optional(claims, reference_names_.side())) {
        result_.only_candidate.push_back({id, is_floating(tensor.dtype)});
        continue;
      }
      const CorrespondenceRule& rule = correspondence_.rules[claims.front().key.rule];
      const std::vector<PatternTensor> places = places_of(rule, reference_names_.side(), {});
      if (places.size() == 1) kept.id = id_of(reference_names_, claims.front().key, places.front());
      if (reference_.tensors.contains(kept.id)) kept.id = id;
      result_.recorded_as[kept.id] = {id};
      result_.candidate.tensors.emplace(kept.id, std::move(kept));
    }
  }

  void note_unused_rules() {
    for (std::size_t i = 0; i < correspondence_.rules.size(); ++i) {
      const CorrespondenceRule& rule = correspondence_.rules[i];
      if (rule.optional || has_any(i, 0) || has_any(i, 1)) continue;
      result_.notes.push_back(fmt::format("{}: '{}' names no tensor of either side", to_string(rule.source),
                                          printable(rule.names[0].front().text())));
    }
  }

  const Correspondence& correspondence_;
  const Alignment& candidate_;
  SideNames reference_names_, candidate_names_;
  const Alignment reference_;
  const AxisSizes sizes_;
  CounterpartGroups groups_;
  Translation result_;
  std::set<TensorId> used_;
};

// Returns how many of the rules name some tensor of a trace.
std::size_t rules_that_name(const Correspondence& correspondence, std::size_t side, const Trace& trace) {
  std::set<std::size_t> rules;
  const SideNames names(correspondence, side, trace);
  for (const RankTrace& rank : trace.ranks) {
    for (const Entry& entry : rank.entries) {
      for (const Claim& claim : names.claims(entry.id)) rules.insert(claim.key.rule);
    }
  }
  return rules.size();
}

}  // namespace

std::size_t side_of_reference(const Correspondence& correspondence, const Trace& reference, const Trace& candidate) {
  std::array<std::size_t, 2> named{};  // by the side that the reference would be
  std::array<std::pair<std::size_t, std::size_t>, 2> each;
  for (std::size_t side : {0, 1}) {
    each[side] = {rules_that_name(correspondence, side, reference),
                  rules_that_name(correspondence, 1 - side, candidate)};
    const auto [a, b] = each[side];
    named[side] = std::min(a, b) == 0 ? 0 : a + b;
  }
  if (named[0] == 0 && named[1] == 0) {
    throw InputError(fmt::format(
        "{}: its rules name tensors of {} of the two traces; expected the names of "
        "{} in one of {} and {}, and those of {} in the other",
        correspondence.path, each[0].first + each[0].second + each[1].first + each[1].second == 0 ? "none" : "only one",
        correspondence.sides[0], reference.directory.string(), candidate.directory.string(), correspondence.sides[1]));
  }
  return named[0] >= named[1] ? 0 : 1;
}

Alignment in_names_of_candidate(const Correspondence& correspondence, std::size_t reference_side,
                                const AlignedTrace& reference, const Trace& candidate) {
  const SideNames source(correspondence, reference_side, *reference.trace);
  const SideNames target(correspondence, 1 - reference_side, candidate);
  const AxisSizes sizes = told_sizes(correspondence, {&reference.alignment});
  CounterpartGroups groups;
  add_to_groups(source, reference.alignment, groups);
  Alignment result;
  for (const auto& [id, tensor] : reference.alignment.tensors) {
    if (source.goes_by_name(id) && target.goes_by_name(id)) result.tensors.emplace(id, tensor);
  }
  for (const auto& [key, group] : groups) {
    const PlacedTensors sources = placed(group, reference_side, reference.alignment);
    const FittedPattern known = fit(*pattern_of(correspondence, key), reference_side, sizes, sources, {});
    if (!known.fits || !unknown_axis(*known.how).empty()) continue;
    for (const PatternTensor& place : places_of(correspondence.rules[key.rule], target.side(), known.how->sizes)) {
      const std::vector<Source> parts = sources_of(*known.how, place, sources);
      if (parts.empty() ||
          std::any_of(parts.begin(), parts.end(), [](const Source& part) { return part.tensor->rows.has_value(); })) {
        continue;
      }
      LogicalTensor tensor = made_of(id_of(target, key, place), known.how, parts, place);
      const TensorId id = tensor.id;
      result.tensors.emplace(id, std::move(tensor));
    }
  }
  return result;
}

Translation translate(const Correspondence& correspondence, std::size_t reference_side, const AlignedTrace& reference,
                      const AlignedTrace& candidate) {
  return CandidateTranslator(correspondence, reference_side, reference, candidate).run();
}

}  // namespace ttrace
