// The outcome of a check: what the stages from judge to diagnose fill in, what history remembers and report renders.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/annotation.h"
#include "base/configuration.h"
#include "base/finding.h"
#include "base/mapping.h"
#include "base/module_source.h"
#include "base/waiver.h"

namespace ttrace {

// The verdict on a run. `Verdict` is the verdict on a tensor.
enum class RunVerdict : std::uint8_t { kSame, kDifferent, kCouldNotLook };
std::string_view name_of(RunVerdict verdict);
Vocabulary<RunVerdict> vocabulary_of(RunVerdict);

constexpr RunVerdict same_or_different(bool same) { return same ? RunVerdict::kSame : RunVerdict::kDifferent; }

// Each tensor counts once, by the worst of its findings (fail, missing, not-seen, untrusted, pass); a finding about
// ranks counts like a tensor.
struct Counts {
  std::int64_t compared = 0;  // pass + fail + untrusted
  std::int64_t pass = 0, fail = 0, untrusted = 0, missing = 0, not_seen = 0;

  void add(Verdict verdict);
};

// A whole iteration or micro-batch that one side lacks. Text reports it in one line instead of thousands.
struct MissingGroup {
  Reason reason = Reason::kMissingInCandidate;
  std::int32_t iteration = 0;
  std::optional<std::int32_t> microbatch;  // absent: the whole iteration
  std::int64_t tensors = 0;
};

// Says what an error looks like; base/outcome.cpp has the words, and what each means.
enum class Cause : std::uint8_t {
  kMissing,
  kNotFinite,
  kNeverUpdated,
  kZero,
  kUnreduced,
  kUniformFactor,
  kStale,
  kOtherTensor,
  kPermutedBlocks,
  kReinterpreted,
  kMissingContribution,
  kStaleOperand,
  kOtherRows,
  kRankFactor,
  kCoarserPrecision,
  kRegion,
  kAccumulatedAgain,
  kLeftOver,
  kOtherInitialisation,
  kOptimizerStep,
  kMeanOfMeans,
  kConfiguredOtherwise,
  kDrawnOtherwise,
  kOtherLoss,
  kOtherNorm,
  kOtherGroup,
  kOwnSamples,
  kOtherAverage,
  kOtherFunction,
};
std::string_view name_of(Cause cause);
Vocabulary<Cause> vocabulary_of(Cause);

// The second run's word on a root (diagnose/localization.h).
enum class Standing : std::uint8_t { kConfirmed, kFound, kMoved };
std::string_view name_of(Standing standing);
Vocabulary<Standing> vocabulary_of(Standing);

// Says what is known of a root beside those before it.
enum class Apart : std::uint8_t {
  kUnknown,       // what it was computed from was not compared
  kSourcesAgree,  // all that was compared of what it was computed from agrees
  kByItself,      // it is computed from nothing, or was seen to be wrong by itself
};

// A wrong tensor that nothing wrong explains (src/diagnose).
struct RootCause {
  std::size_t finding = 0;                 // index into the report's `findings`
  std::string module;                      // the module that it was seen at
  std::int64_t repeated = 0;               // in how many further micro-batches and iterations it is a root as well
  std::vector<std::string> alike;          // further tensors that were roots of the same kind, with the same diagnosis
  std::int64_t explained = 0;              // how many wrong tensors follow from it
  bool examined = false;                   // true for the roots that text shows; a diagnosis was tried for them
  std::optional<Cause> diagnosis;          // none: nothing known explains the error
  double residual = 0;                     // of the diagnosis: ||candidate - prediction|| / ||prediction||
  std::optional<AxisPlacement> placement;  // by which the tensor would be right, where the diagnosis is one of that
  std::string sentence;
  Apart apart = Apart::kUnknown;
  std::optional<Standing> standing;  // none: there was no second run
  ModuleSource source;               // of `module`, as the candidate's ranks say it
};

// Counts the tensors of a kind that prove something. A floating-point tensor does when it passed: its reference is
// finite and not zero, and the values were equal, or closer than a tolerance that was measured (or is the default, and
// `Proof::unmeasured` says so) and is not noise. What passes by an override alone, or is waived, does not, unless the
// user accepts that.
struct KindProof {
  std::int64_t compared = 0;                   // floating-point tensors
  std::int64_t proved = 0;                     // of these
  std::map<std::string, std::int64_t> others;  // the others, by reason, kByOverride or kByWaiver
};
using Proofs = std::map<Kind, KindProof>;
inline constexpr const char* kByOverride = "override";
inline constexpr const char* kByWaiver = "waiver";

// The kinds of which too little was proved to call two runs the same. The rule: of every kind of which floating-point
// tensors were compared, at least half prove something. Three exceptions:
// - param_delta is noise in low precision, where rounding decides the sign of many of Adam's steps. It needs no proof
//   where main_grad and param_after have theirs; nor does a loss that is noise (of advantages) where main_grad has.
// - an initial parameter may be zero by design, as most biases are, and so may what an optimizer holds of it; where one
//   is, it does not count. Nor does a buffer that is zero, or each rank's own.
// What is zero in one iteration, and proved in a later one, is not counted at all (judge_all.cpp).
std::set<Kind> unproved_kinds(const Proofs& proofs);

// An override of the tolerance file, and what it did.
struct OverrideUse {
  std::string where;  // file:line
  std::string pattern;
  std::optional<Kind> kind;
  double allowed = 0;
  std::string reason;
  std::int64_t covered = 0;  // tensors that it gave their tolerance
  std::int64_t excused = 0;  // of these, those that pass, or are untrusted, by it alone
};

// Says what a check of a run's optimizer steps has covered (step/step.h). An update is one parameter's, in one
// iteration, by all ranks that hold a part of it.
struct StepCoverage {
  std::int64_t trained = 0;             // parameters that want gradients, used or not; 0: the trace does not say
  std::int64_t parameters = 0;          // that have updates
  std::int64_t parameters_checked = 0;  // all of whose updates were checked
  std::int64_t updates = 0, updates_checked = 0;
  std::int64_t copies_checked = 0;    // of what the optimizer made, to the parameter
  std::set<std::int32_t> iterations;  // with a checked update
  std::set<std::string> optimizers;   // the classes that made those
  double worst = 0;                   // the largest error of a right update, in units of what rounding explains
  // Updates, of optimizers whose rule is not known, that were checked by regression on the reference's
  // (step/regression.h): how many of all, the classes, and the largest error of a right one, in units of what correct
  // runs explain.
  std::int64_t updates_regressed = 0;
  std::set<std::string> regressed_optimizers;
  double worst_regressed = 0;
  std::map<std::string, std::int64_t> not_checkable;  // why updates were not checked, and how many
  std::vector<std::string> untrained;  // of those that want gradients, and why: `pooler.weight: in no optimizer`
};

// A finding that a waiver accepts; without it the verdict would not be `same`.
struct WaivedFinding {
  Finding finding;
  Waiver waiver;
};

// Tensors of two programs that correspond to nothing in the other, and were not compared (src/correspond).
struct WithoutCounterpart {
  std::int64_t reference = 0, candidate = 0;                        // how many
  std::vector<std::string> names_of_reference, names_of_candidate;  // '#' for numbers: each once for all layers
};

// Says what was looked at.
struct Runs {
  std::string reference, candidate;                       // directories, as the user gave them
  std::optional<WithoutCounterpart> without_counterpart;  // none: both sides have the same names
  // One sentence that says which side holds less by design, why, and how much of the other is not in it. None: neither
  // does.
  std::optional<std::string> partial;
  // One sentence that says how many tensors were judged by their sketches, and what these cannot show. None: no tensor
  // was.
  std::optional<std::string> sketched;
  // One sentence that says how the candidate's job failed, after it had recorded all that it was to. None: it did not.
  std::optional<std::string> failed;
  bool cut_otherwise = false;  // micro-batches were put together (correspond/join_microbatches.h)
  // What surrounds the candidate's computation otherwise than the reference's, as far as both traces say it.
  std::vector<OtherSurrounding> surroundings;
};

// Says how much was looked at. compared + missing + not seen + waived = tensors of either side + findings about ranks.
struct Totals {
  Counts counts;
  std::int64_t waived = 0;
  std::int64_t placed_by_shape = 0;  // of those compared: no rule placed them, their shapes did
  double coverage = 0;               // share of the reference's tensors that were compared; waived ones do not count
  std::map<std::pair<std::string, Kind>, Counts> by_name;  // over iterations and micro-batches
  std::vector<MissingGroup> missing_groups;
  std::optional<StepCoverage> steps;  // none: the trace says nothing of an optimizer
};

// Families of parameters, those whose names differ in numbers only, of whose gradients nothing but zeros was compared:
// no mistake with them shows.
struct ZeroGradients {
  std::vector<std::string> families;  // printable, with '#' for numbers
  std::int32_t first = 0, last = 0;   // iterations that were compared
};

// Says what the tensors that passed are worth.
struct Proof {
  std::optional<Proofs> by_kind;                // none: of a trace that was checked against itself
  std::optional<ZeroGradients> zero_gradients;  // none: of each family something is proved, or differs
  // Families of parameters of whose steps nothing is proved: by tolerances that were not measured, or as no optimizer
  // of the program has them, and what steps them otherwise may differ by as much; names have '#' for numbers.
  std::vector<std::string> unproved_steps;
  // Lists optimizers that took no step in what was recorded, though others did. None: there are none.
  std::optional<std::string> unstepped;
  std::vector<OverrideUse> overrides;  // all of the tolerance file's
  std::optional<std::string>
      unmeasured;                // what tolerances are that were not measured. None: measured, or there are none
  std::optional<double> margin;  // of measured tolerances, where it is another than kDefaultMargin
};

// What nobody has said, and would have to, before tensors that differ can be called wrong. They are untrusted.
struct Question {
  std::size_t finding = 0;   // the first of them: index into the report's `findings`
  std::int64_t tensors = 0;  // how many they are
  std::string sentence;      // what differs, what is not known, and what to write or to do
};

// Says what explains the wrong tensors.
struct Explanation {
  std::vector<RootCause> roots;                     // in execution order; none where nobody looked for them
  std::vector<Question> questions;                  // one for each reason (`is_in_question`)
  std::optional<std::int64_t> wrong_in_second_run;  // number of wrong tensors; none: there was no second run
  // Of the candidate's loss and gradients in all micro-batches, as the bytes tell it. None: said, or the reference's.
  std::optional<Factor> told_loss_scale;
  // Attributes of modules that are configured otherwise than in the reference (diagnose/configurations.h).
  std::vector<OtherAttribute> configured;
};

// Says what the user may do next (src/advice).
struct Advice {
  std::optional<std::string> instead;  // why the findings are not worth reading before something is done
  std::optional<std::string> next;     // the command worth typing next: it makes what is lacking, or looks closer
  std::string all_findings;            // the command that prints all findings
  // Index into the report's `findings` of what is wrong first, where it is of a light iteration, and only what modules
  // computed there may explain it: `next` records that iteration whole.
  std::optional<std::size_t> lacks_activations;
};

struct Report {
  Runs runs;
  Totals totals;
  std::vector<Finding> findings;               // every verdict but `pass`, in execution order
  std::vector<Finding> passed;                 // the others
  std::vector<WaivedFinding> waived_findings;  // neither; in execution order
  Proof proof;
  Explanation explanation;
  Advice advice;
  std::vector<std::string> notes;
  bool strict = false;  // untrusted counts as failed, and not-seen as could-not-look

  // `different` where something failed, is missing of a whole candidate and not in question, has no tolerance or, if
  // strict, is untrusted. Else `could-not-look` where that leaves the question open: ranks are missing or unfinished,
  // something is in question, nothing passed, too little was proved (no floating-point tensor at all, or a kind of
  // `unproved_kinds`, a loss is not finite, a family's gradients are zero or its steps unproved, an optimizer took no
  // step), of a kind of tensors that were not seen nothing passed, the check is strict and something was not seen or a
  // module is configured otherwise, or the job failed afterwards. Else `same`.
  RunVerdict verdict() const;
  bool same() const { return verdict() == RunVerdict::kSame; }
  // Kinds of which some tensors were not seen and none passed. What a side does not hold by design is not asked for, nor
  // is a loss whose gradients were seen.
  std::set<Kind> unseen_kinds() const;
  // A loss of which no element is finite on either side: whatever else is equal, nothing was trained. Null: there is
  // none.
  const Finding* lost() const;
  // True when nothing is wrong and yet too little was proved.
  bool lacks_proof() const;
  // True when a tensor differs, and no tolerance says by how much it may.
  bool lacks_tolerance() const;
  // The first finding in execution order that is `fail` or `missing`; null when there is none.
  const Finding* first_wrong() const;
};

}  // namespace ttrace
