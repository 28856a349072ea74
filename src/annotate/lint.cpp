#include "annotate/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "annotate/misplaced.h"
#include "annotate/sequence.h"
#include "annotate/shared_parameters.h"
#include "base/describe.h"
#include "base/mesh.h"
#include "identify/resolved_annotations.h"

namespace ttrace {
namespace {

using NameAndKind = std::pair<std::string, Kind>;

std::string describe_subject(const NameAndKind& subject) {
  return fmt::format("{} {}", printable(subject.first), name_of(subject.second));
}

class Linter {
 public:
  Linter(const AlignedTrace& aligned, const Annotations& annotations, const Alignment* reference)
      : aligned_(aligned),
        mesh_(aligned.trace->mesh),
        annotations_(annotations),
        alignment_(aligned.alignment),
        reference_(reference) {
    for (const auto& [id, tensor] : alignment_.tensors) subjects_.emplace(id.name, id.kind);
    for (const Finding& finding : alignment_.findings) {
      if (!finding.id.name.empty()) subjects_.emplace(finding.id.name, finding.id.kind);
    }
  }

  std::vector<LintMessage> run() {
    find_misfits();
    find_unplaced();
    find_placed_by_shape();
    find_unused();
    find_ambiguous();
    find_absent_axes();
    find_uneven_splits();
    find_wrong_splits();
    find_untied();
    std::stable_sort(messages_.begin(), messages_.end(), [this](const LintMessage& a, const LintMessage& b) {
      return reading_order(a) < reading_order(b);
    });
    return std::move(messages_);
  }

 private:
  const AnnotationRule* rule_of(const NameAndKind& subject) const {
    return rule_for(annotations_, subject.second, subject.first);
  }

  void add(LintCheck check, const AnnotationRule& rule, int line, const std::string& what) {
    messages_.push_back({check, {rule.source.file, line}, fmt::format("{}: {}", where(rule, line), what)});
  }

  // Sorts messages by file, in the order in which the files were read, and then by line.
  std::pair<std::ptrdiff_t, int> reading_order(const LintMessage& message) const {
    if (message.source.line == 0) return {-1, 0};
    const std::vector<std::string>& files = annotations_.files;
    return {std::find(files.begin(), files.end(), message.source.file) - files.begin(), message.source.line};
  }

  void find_misfits() {
    for (const Finding& finding : alignment_.findings) {
      const AnnotationRule* rule = finding.id.name.empty() ? nullptr : rule_of({finding.id.name, finding.id.kind});
      if (rule == nullptr) {
        messages_.push_back({LintCheck::kMisfit, {}, finding.message});
      } else {
        add(LintCheck::kMisfit, *rule, rule->source.line, finding.message);
      }
    }
  }

  // A parameter lies as its gradient does, whose bits tell where its own do not: the ones of a norm, zeros of a bias.
  std::set<std::string> replicated_parameters() const {
    std::set<std::string> names;
    for (const auto& [id, tensor] : alignment_.tensors) {
      if (is_parameter_kind(id.kind) && is_same_on_all_ranks(tensor)) names.insert(id.name);
    }
    return names;
  }

  void find_unplaced() {
    const std::set<std::string> replicated = replicated_parameters();
    std::set<NameAndKind> placed, open;  // by a rule, the program, its shape or its bits; and what is not
    for (const auto& [id, tensor] : alignment_.tensors) {
      const bool is_replicated =
          is_same_on_all_ranks(tensor) ||
          (is_parameter_kind(id.kind) && replicated.contains(id.name) && has_equal_copies(tensor));
      const bool is_placed =
          tensor.annotated || !tensor.deduced.empty() || tensor.pieces().size() == 1 || is_replicated;
      (is_placed ? placed : open).emplace(id.name, id.kind);
    }
    for (const NameAndKind& subject : open) placed.erase(subject);
    std::map<std::string, std::vector<std::string>> kinds;
    for (const NameAndKind& subject : subjects_) {
      // A scalar needs no rule: every rank that has it has the same.
      if (subject.second == Kind::kScalar || placed.contains(subject) || rule_of(subject) != nullptr) continue;
      kinds[subject.first].emplace_back(name_of(subject.second));
    }
    for (const auto& [name, of_name] : kinds) {
      messages_.push_back({LintCheck::kUnplaced,
                           {},
                           fmt::format("no rule places {} {}: taken as replicated on every axis", printable(name),
                                       comma_list(of_name))});
    }
  }

  void find_placed_by_shape() {
    std::map<NameAndKind, std::string> placed;
    for (const auto& [id, tensor] : alignment_.tensors) {
      std::vector<std::string> words;
      for (const AxisPlacement& axis : tensor.deduced) {
        if (axis.placement == Placement::kShard) words.push_back(describe_split(axis));
      }
      if (!words.empty()) placed.try_emplace({id.name, id.kind}, fmt::format("{}", fmt::join(words, ", ")));
    }
    for (const auto& [subject, words] : placed) {
      messages_.push_back({LintCheck::kPlacedByShape,
                           {},
                           fmt::format("{}: placed by its shape: {}", describe_subject(subject), words)});
    }
  }

  void find_unused() {
    std::set<const AnnotationRule*> used;
    for (const NameAndKind& subject : subjects_) used.insert(rule_of(subject));
    for (const AnnotationRule& rule : annotations_.rules) {
      if (!rule.optional && !used.contains(&rule))
        add(LintCheck::kUnusedRule, rule, rule.source.line, "places no tensor of the trace");
    }
  }

  void find_ambiguous() {
    std::map<std::pair<const AnnotationRule*, const AnnotationRule*>, std::vector<std::string>> tensors;
    for (const NameAndKind& subject : subjects_) {
      for (const AnnotationRule* other : contenders(annotations_, subject.second, subject.first)) {
        tensors[{rule_of(subject), other}].push_back(describe_subject(subject));
      }
    }
    for (const auto& [rules, words] : tensors) {
      const auto& [rule, other] = rules;
      const bool in_one_file = rule->source.file == other->source.file;
      add(LintCheck::kAmbiguous, *rule, rule->source.line,
          fmt::format(
              "no more specific than '{}' in {}, and places {} only because it comes later", printable(other->pattern),
              in_one_file ? fmt::format("line {}", other->source.line) : to_string(other->source), comma_list(words)));
    }
  }

  void find_absent_axes() {
    if (mesh_.axes.empty()) return;  // a single rank: every axis has size 1
    std::map<std::string, std::vector<std::pair<const AnnotationRule*, int>>> absent;
    const ResolvedAnnotations resolved = resolve(annotations_, mesh_);
    for (std::size_t i = 0; i < annotations_.rules.size(); ++i) {
      for (const AxisUse& use : resolved.uses[i]) {
        if (use.axis < 0) absent[use.split.axis].emplace_back(&annotations_.rules[i], use.line);
      }
    }
    for (const auto& [axis, uses] : absent) {
      const std::string more = uses.size() == 1 ? "" : fmt::format(" (and {} more)", uses.size() - 1);
      add(LintCheck::kAbsentAxis, *uses[0].first, uses[0].second,
          fmt::format("axis '{}' is not in the trace [{}], so it has size 1{}", axis, to_string(mesh_), more));
    }
  }

  // Reports each rule and dimension once, with the first tensor as an example.
  void find_uneven_splits() {
    std::set<std::tuple<const AnnotationRule*, std::string, std::int64_t>> reported;
    for (const auto& [id, tensor] : alignment_.tensors) {
      const AnnotationRule* rule = rule_of({id.name, id.kind});
      if (rule == nullptr) continue;
      for (const AxisPlacement& axis : rule->axes) {
        if (axis.placement != Placement::kShard) continue;
        const auto ndim = static_cast<std::int64_t>(tensor.shape.size());
        const std::int64_t dim = axis.dim < 0 ? axis.dim + ndim : axis.dim;
        std::set<std::int64_t> sizes;
        for (const Piece& piece : tensor.pieces()) {
          const Shape& shape = piece.entry->shape;  // of fewer dimensions where it is a flat fragment
          if (shape.size() == tensor.shape.size()) sizes.insert(shape[static_cast<std::size_t>(dim)]);
        }
        if (sizes.size() < 2 || !reported.emplace(rule, axis.axis, dim).second) continue;
        add(LintCheck::kUnevenSplit, *rule, axis.line,
            fmt::format("axis '{}' splits dimension {} of {} {}, {}, unevenly: parts of {} to {}", axis.axis, dim,
                        printable(id.name), name_of(id.kind), to_string(tensor.shape), *sizes.begin(),
                        *sizes.rbegin()));
      }
    }
  }

  void find_wrong_splits() {
    // Tensors that rules split over sp are not looked at one by one where the program runs without it.
    if (const std::int64_t whole = count_whole_sequences(aligned_, annotations_, reference_); whole > 0) {
      const std::string& axis = mesh_.aliases.at(kSequenceAxis);
      messages_.push_back(
          {LintCheck::kNoSequenceParallelism,
           {},
           fmt::format("sp={0}: all {1} tensors that rules split over sp are whole on every rank of {0}: "
                       "the program runs without sequence parallelism; expected axes without sp={0}",
                       axis, whole)});
      if (reference_ == nullptr) return;
    }
    for (const auto& [rule, text] : find_misplaced(aligned_, annotations_, reference_)) {
      add(LintCheck::kMisplaced, *rule, rule->source.line, text);
    }
  }

  void find_untied() {
    for (const auto& [name, of] : find_shared_parameters(alignment_, reference_)) {
      messages_.push_back({LintCheck::kUntied,
                           {},
                           fmt::format("{0} has the bits of {1} before and after every step, and no rule ties them; "
                                       "expected `parallelism: {{tied: {{{0}: {1}}}}}`",
                                       printable(name), printable(of))});
    }
  }

  const AlignedTrace& aligned_;
  const Mesh& mesh_;
  const Annotations& annotations_;
  const Alignment& alignment_;
  const Alignment* reference_;
  std::set<NameAndKind> subjects_;
  std::vector<LintMessage> messages_;
};

}  // namespace

std::string_view name_of(LintCheck check) {
  switch (check) {
    case LintCheck::kMisfit:
      return "misfit";
    case LintCheck::kUnplaced:
      return "unplaced";
    case LintCheck::kPlacedByShape:
      return "placed-by-shape";
    case LintCheck::kUnusedRule:
      return "unused-rule";
    case LintCheck::kAmbiguous:
      return "ambiguous";
    case LintCheck::kAbsentAxis:
      return "absent-axis";
    case LintCheck::kUnevenSplit:
      return "uneven-split";
    case LintCheck::kMisplaced:
      return "misplaced";
    case LintCheck::kUntied:
      return "untied";
    case LintCheck::kNoSequenceParallelism:
      return "no-sequence-parallelism";
  }
  return "";
}

bool is_mistake(LintCheck check) {
  return check != LintCheck::kPlacedByShape && check != LintCheck::kAbsentAxis && check != LintCheck::kUnevenSplit;
}

std::vector<LintMessage> lint(const AlignedTrace& aligned, const Annotations& annotations, const Alignment* reference) {
  return Linter(aligned, annotations, reference).run();
}

}  // namespace ttrace
