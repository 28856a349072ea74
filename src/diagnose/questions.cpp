#include "diagnose/questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "align/recorded_bits.h"
#include "base/count_of.h"
#include "base/describe.h"
#include "base/estimator.h"
#include "base/lookup.h"
#include "base/tensor_name.h"
#include "diagnose/changed_after.h"
#include "diagnose/further_calls.h"
#include "diagnose/handed_states.h"
#include "diagnose/hypothesis.h"
#include "diagnose/light_jumps.h"
#include "diagnose/loss_scales.h"
#include "diagnose/other_microbatches.h"
#include "diagnose/other_names.h"
#include "diagnose/own_buffers.h"
#include "diagnose/own_numbers.h"
#include "diagnose/unlike_samples.h"
#include "identify/packed.h"
#include "judge/judge.h"
#include "judge/later_sums.h"
#include "judge/right_elsewhere.h"
#include "judge/rounding_alone.h"
#include "tolerance/floors.h"

namespace ttrace {
namespace {

bool do_shards_misfit(const Finding& finding) {
  return finding.reason == Reason::kShapeMismatch || finding.reason == Reason::kOverlap;
}

// True for errors that tell the tensor's place: the rest of it is right there, or what is wrong is known. Terms of what
// leaves the whole model are nobody's to add up.
bool is_known_in_place(const TensorId& id, std::optional<Cause> cause) {
  if (cause == Cause::kUnreduced && last_component(TensorName(id.name).path) == kRootModule) return true;
  constexpr std::array kInPlace = {Cause::kRegion,      Cause::kOtherRows,   Cause::kZero,
                                   Cause::kStale,       Cause::kNotFinite,   Cause::kCoarserPrecision,
                                   Cause::kOtherTensor, Cause::kNeverUpdated};
  return cause && std::find(kInPlace.begin(), kInPlace.end(), *cause) != kInPlace.end();
}

// True where the shapes alone say that the tensor's shards end in padding: a halo is as long, and then all shards but
// the first lie elsewhere.
bool is_padded_by_shape(const TensorId& id, const Evidence& evidence) {
  const LogicalTensor* tensor = find_tensor(evidence.candidate, id);
  return tensor != nullptr && !is_parameter_kind(id.kind) &&
         std::any_of(tensor->deduced.begin(), tensor->deduced.end(),
                     [](const AxisPlacement& axis) { return axis.unpadded.has_value(); });
}

// True for labels, lengths and the like: what is computed with them is compared.
bool is_integer_input(const TensorId& id, const Evidence& evidence) {
  const LogicalTensor* tensor = find_tensor(evidence.reference, id);
  return tensor != nullptr && id.kind == Kind::kInput && !is_floating(tensor->dtype);
}

// The line of annotations that would say the placement, as far as anything is known of it.
std::string line_for(const Finding& finding, const RootCause* root, const Evidence& evidence) {
  std::vector<AxisPlacement> axes;
  const LogicalTensor* tensor = find_tensor(evidence.candidate, finding.id);
  if (root != nullptr && root->placement) axes.push_back(*root->placement);
  for (const AxisPlacement& axis : tensor == nullptr ? std::vector<AxisPlacement>() : tensor->deduced) {
    const bool is_said = !axes.empty() && axes.front().axis == axis.axis;
    if (axis.placement == Placement::kShard && !is_said) axes.push_back(axis);
  }
  if (!axes.empty()) return annotation_line(finding.id, axes);
  return fmt::format("{}: {{{}: {{<axis>: {{dim: ..., layout: ...}}}}}}", printable(finding.id.name),
                     name_of(finding.id.kind));
}

// The finding's message without the line of annotations that would say its placement, which `line_for` gives.
std::string message_without_line(const Finding& finding, const Evidence& evidence) {
  const LogicalTensor* tensor = find_tensor(evidence.candidate, finding.id);
  const std::string placing = tensor == nullptr || !tensor->doubt.empty() ? "" : placing_of(*tensor);
  std::string_view message = finding.message;
  if (message.ends_with(placing)) message.remove_suffix(placing.size());
  return std::string(message);
}

// The axis along which the root's terms lie.
std::string axis_of(const RootCause* root) {
  return root != nullptr && root->placement ? root->placement->axis : "<axis>";
}

// Marks the findings that are set aside, and why.
class Questions {
 public:
  Questions(Report& report, std::span<const std::optional<std::size_t>> follows_from, const Evidence& evidence)
      : report_(report), follows_from_(follows_from), evidence_(evidence), reasons_(report.findings.size()) {}

  void mark_names() {
    few_shared_names_ = describe_few_shared_names(evidence_);
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      const Finding& finding = report_.findings[i];
      if (!is_wrong(finding)) continue;
      const bool is_by_name = few_shared_names_ && rests_on_name(finding, report_);
      if (is_by_name || other_of_no_module(finding, report_, evidence_)) reasons_[i] = Reason::kOtherNames;
    }
  }

  void mark_microbatches() {
    cut_ = batches_cut_otherwise(evidence_);
    const auto are_run_by_none = [](const Finding& finding) {
      return finding.id.name.empty() && finding.reason == Reason::kOmission;
    };
    const bool is_chosen = std::ranges::any_of(report_.findings, are_run_by_none);  // by each rank, how many it runs
    if (cut_.empty() && is_chosen && is_training_right(report_.findings, report_.passed)) {
      cut_ = other_numbers_of_microbatches(evidence_);
    }
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      const Finding& finding = report_.findings[i];
      const bool is_of_some = finding.id.microbatch != kNoMicrobatch || are_run_by_none(finding);
      const bool is_of_cut =
          (is_of_some && cut_.contains(finding.id.iteration)) || evidence_.candidate.apart.contains(finding.id);
      if (is_of_cut && !reasons_[i] && is_wrong(finding)) reasons_[i] = Reason::kOtherMicrobatches;
    }
  }

  void mark_further_calls() {
    for (const std::size_t i : find_further_calls(report_, evidence_)) {
      if (!reasons_[i]) reasons_[i] = Reason::kOtherMicrobatches;
    }
  }

  void mark_own_numbers() {
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      const bool is_root = follows_from_[i] == i;
      if (is_root && !reasons_[i] && !describe_own_numbers(report_.findings[i], evidence_).empty()) {
        mark_followers(i, Reason::kOwnNumbers);
      }
    }
  }

  void mark_handed_states() {
    states_ = find_handed_states(report_, evidence_);
    for (const std::size_t i : states_.findings) {
      if (!reasons_[i]) reasons_[i] = Reason::kOwnNumbers;
    }
  }

  void mark_changed_after() {
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      const Finding& finding = report_.findings[i];
      if (reasons_[i] || !is_wrong(finding)) continue;
      if (is_averaged_after(finding, report_, evidence_) || !ranks_that_ended_early(finding, evidence_).empty()) {
        reasons_[i] = Reason::kChangedAfter;
      }
    }
  }

  void mark_loss_scales() {
    for (const std::size_t i : find_divided_in_step(report_, evidence_)) {
      if (!reasons_[i]) reasons_[i] = Reason::kUnknownLossScale;
    }
    // What a later iteration does wrong says nothing of those before it.
    const std::int32_t end = end_of_right_training(report_.findings, report_.passed);
    if (end == 0) return;
    for (const std::size_t i : find_scaled(report_)) {
      if (!reasons_[i] && report_.findings[i].id.iteration < end) reasons_[i] = Reason::kUnknownLossScale;
    }
  }

  void mark_buffers() {
    const std::vector<Finding>& findings = report_.findings;
    const auto is_buffer = [](const Finding& finding) { return is_buffer_kind(finding.id.kind) && is_wrong(finding); };
    if (std::none_of(findings.begin(), findings.end(), is_buffer)) return;
    const bool is_dealt = deals_microbatches(evidence_.candidate);
    bool is_alone = true;
    std::set<std::int32_t> differing_steps;  // iterations that leave ranks with other parameters
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      if (reasons_[i] || !is_wrong(findings[i]) || is_buffer_kind(findings[i].id.kind)) continue;
      is_alone = false;
      const bool is_of_step = findings[i].id.kind == Kind::kParamDelta || findings[i].id.kind == Kind::kParamAfter;
      if (is_of_step && are_unequal_copies(findings[i])) differing_steps.insert(findings[i].id.iteration);
    }
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      const bool explains = !is_alone && explains_others(i);
      if (is_buffer(findings[i]) && !reasons_[i]) {
        const bool follows_steps = differing_steps.contains(findings[i].id.iteration);
        reasons_[i] = own_buffer(findings[i], {is_dealt, is_alone, explains, follows_steps}, evidence_);
      }
    }
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      if (findings[i].reason == Reason::kIntegerDiffers && reasons_[i] && is_buffer(findings[i]) &&
          is_beside_wrong(i)) {
        reasons_[i].reset();
      }
    }
  }

  // True for what its module keeps beside another buffer that is wrong, in this iteration or a later one: a pointer that
  // counts a rank's own samples, beside the queue that it points into.
  bool is_beside_wrong(std::size_t buffer) const {
    const TensorId& id = report_.findings[buffer].id;
    const auto owner = owner_of(TensorName(id.name.get()).path);
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      const Finding& other = report_.findings[i];
      if (i == buffer || reasons_[i] || !is_wrong(other) || !is_buffer_kind(other.id.kind)) continue;
      if (other.id.iteration >= id.iteration && owner_of(TensorName(other.id.name.get()).path) == owner) return true;
    }
    return false;
  }

  // True where no gradient of an output in the micro-batch of a loss is wrong.
  bool comes_back_right(std::size_t loss) const {
    const TensorId& id = report_.findings[loss].id;
    return std::ranges::none_of(report_.findings, [&](const Finding& finding) {
      return finding.id.kind == Kind::kGradOutput && finding.id.iteration == id.iteration &&
             finding.id.microbatch == id.microbatch && is_wrong(finding);
    });
  }

  void mark_guesses() {
    const std::int32_t end = end_of_right_training(report_.findings, report_.passed);
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      const Finding& finding = report_.findings[i];
      // What is computed with numbers is compared: a loss that is right was made of them, however they are dealt out.
      const bool is_used_right = is_integer_input(finding.id, evidence_) && is_loss_right(finding.id);
      const bool is_right =
          finding.id.iteration < end || is_used_right || (finding.whole_in_part && comes_back_right(i));
      const bool is_root = follows_from_[i].value_or(i) == i;
      const bool is_buffer = is_buffer_kind(finding.id.kind);
      if (is_buffer || !is_root || !finding.guessed || !is_wrong(finding) || reasons_[i]) continue;
      const RootCause* root = root_of(i);
      const bool misfits = do_shards_misfit(finding) && !is_parameter_kind(finding.id.kind);
      const std::optional<Cause> cause = root == nullptr ? std::nullopt : root->diagnosis;
      const bool is_of_parts = cause == Cause::kRegion || cause == Cause::kOtherRows;
      const bool tells_place = !is_of_parts || !is_padded_by_shape(finding.id, evidence_);
      // Values of another rank or micro-batch that harm nothing may have been dealt out so.
      const bool may_be_dealt = is_right && (cause == Cause::kStale || cause == Cause::kOtherTensor);
      if (tells_place && is_known_in_place(finding.id, cause) && !may_be_dealt) continue;
      if (!is_right && is_dealt_along_tensor_axis(finding.id, evidence_)) continue;
      if (!is_right && cause == Cause::kPermutedBlocks && is_copied_along_tensor_axis(finding.id, evidence_)) continue;
      if (lies_so_in_other_layer(finding.id)) continue;
      if (!is_right && misfits && (has_other_batch(finding.id.iteration) || has_whole_on_some_rank(finding.id)))
        continue;
      if (!misfits && !is_other_placement(i, cause) && !is_right && !is_small_beside_open(finding, cause)) continue;
      reasons_[i] = Reason::kGuessedPlacement;
      mark_followers(i, Reason::kGuessedPlacement);
    }
    mark_gradients_of_guesses();
  }

  // True where a rank has the very bits of the reference's whole tensor: ranks have copies, of which others are wrong.
  bool has_whole_on_some_rank(const TensorId& id) {
    const LogicalTensor* whole = find_tensor(evidence_.reference, id);
    const std::vector<Piece> pieces = whole == nullptr ? std::vector<Piece>() : whole->pieces();
    if (pieces.size() != 1 || evidence_.candidate_trace == nullptr) return false;
    if (recorded_.empty()) {
      for (const RankTrace& rank : evidence_.candidate_trace->ranks) {
        for (const Entry& entry : rank.entries) recorded_[entry.id].push_back(&entry);
      }
    }
    const Entry& entry = *pieces[0].entry;
    const auto found = recorded_.find(entry.id);
    return found != recorded_.end() && std::ranges::any_of(found->second, [&](const Entry* other) {
             return other->dtype == entry.dtype && other->shape == entry.shape && other->checksum == entry.checksum;
           });
  }

  // True where the shapes of what models are given say that it is of more or fewer samples than the reference's.
  bool has_other_batch(std::int32_t iteration) {
    const auto [found, is_new] = other_batches_.try_emplace(iteration);
    if (is_new) found->second = !describe_other_batch(evidence_, iteration).empty();
    return found->second;
  }

  // True where the same tensor of another layer lies as this one, by its shape, and is right: that is where it lies.
  bool lies_so_in_other_layer(const TensorId& id) {
    if (!right_in_layers_) right_in_layers_.emplace(report_.passed);
    const LogicalTensor* tensor = find_tensor(evidence_.reference, id);
    return tensor != nullptr && std::ranges::any_of(right_in_layers_->others(id), [&](const TensorId& other) {
             const LogicalTensor* its = find_tensor(evidence_.reference, other);
             return its != nullptr && its->shape == tensor->shape;
           });
  }

  // A gradient lies as what it is the gradient of.
  void mark_gradients_of_guesses() {
    std::set<TensorId> guesses;
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      if (reasons_[i] == Reason::kGuessedPlacement) guesses.insert(report_.findings[i].id);
    }
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      const Finding& finding = report_.findings[i];
      const bool is_of_output = finding.id.kind == Kind::kGradOutput, is_of_input = finding.id.kind == Kind::kGradInput;
      if (reasons_[i] || !is_wrong(finding) || !(is_of_output || is_of_input)) continue;
      if (!guesses.contains(finding.id.with_kind(is_of_output ? Kind::kOutput : Kind::kInput))) continue;
      const LogicalTensor* tensor = find_tensor(evidence_.candidate, finding.id);
      if (tensor != nullptr && tensor->annotated) continue;  // a rule says where the gradient itself lies
      reasons_[i] = Reason::kGuessedPlacement;
      mark_followers(i, Reason::kGuessedPlacement);
    }
  }

  // True for a few numbers in fp32 or wider that no perturbed run moved: what remains of a sum that nearly cancels may be
  // off by some roundings more than its floor says.
  bool is_unmoved(const Finding& finding) const {
    if (evidence_.tolerance == nullptr || !finding.difference) return false;
    if (finding.difference->elements > kFewElements) return false;
    const auto found = evidence_.tolerance->tensors.find({finding.id.kind, finding.id.name});
    const LogicalTensor* tensor = find_tensor(evidence_.candidate, finding.id);
    if (found == evidence_.tolerance->tensors.end() || tensor == nullptr) return false;
    const bool is_wide = epsilon_of(tensor->dtype) <= epsilon_of(Dtype::kFloat32);
    return is_wide && !found->second.samples.empty() &&
           std::ranges::all_of(found->second.samples, [](double sample) { return sample == 0; });
  }

  // True for a gradient in fp32 or wider that is off by little in most elements, as one whose terms are added up in another
  // order: the perturbed runs add them up in the reference's.
  bool is_summed_otherwise(const Finding& finding) const {
    constexpr double kMostEpsilons = 64;  // of its dtype
    const LogicalTensor* tensor = find_tensor(evidence_.candidate, finding.id);
    const bool is_gradient = finding.id.kind == Kind::kParamGrad || finding.id.kind == Kind::kMainGrad;
    return is_gradient && tensor != nullptr && is_off_by_steps(finding, tensor->dtype, kMostEpsilons, 2);
  }

  // Where nothing but such tolerances is exceeded, or ones that were not measured, and by little.
  void mark_near_unmeasured() {
    constexpr double kMostRoundings = 64;  // beyond the floor, of what no run moved
    const std::vector<RootCause>& roots = report_.explanation.roots;
    const auto is_explained = [](const RootCause& root) { return root.diagnosis.has_value(); };
    if (std::any_of(roots.begin(), roots.end(), is_explained)) return;
    std::vector<std::optional<Reason>> marked = reasons_;
    for (std::size_t i = 0; i < marked.size(); ++i) {
      const Finding& finding = report_.findings[i];
      if (marked[i] || !is_wrong(finding)) continue;
      const std::optional<double> ratio = ratio_of(finding);
      const bool may_be_near = report_.proof.unmeasured || is_summed_otherwise(finding);
      const double most = is_unmoved(finding) ? kMostRoundings : may_be_near ? kDefaultMargin : 0;
      const bool is_near = finding.reason == Reason::kExceedsTolerance && ratio && *ratio <= most;
      if (!is_near) return;
      marked[i] = Reason::kNearUnmeasured;
    }
    reasons_ = std::move(marked);
  }

  void mark_light_jumps() {
    std::vector<bool> is_open;
    for (const auto& reason : reasons_) is_open.push_back(reason.has_value());
    light_jump_ = find_light_jump(report_, is_open, evidence_);
    for (std::size_t i = 0; light_jump_ && i < reasons_.size(); ++i) {
      if (!reasons_[i] && is_wrong(report_.findings[i])) reasons_[i] = Reason::kPossibleJump;
    }
  }

  // True where something wrong that is no buffer follows from the buffer: a module was given it, or the module that keeps
  // it, or one inside, computes. Of what the whole model keeps all would follow, which says nothing.
  bool explains_others(std::size_t buffer) const {
    const TensorId& id = report_.findings[buffer].id;
    const bool is_of_whole_model = owner_of(TensorName(id.name.get()).path) == kRootModule;
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      const Finding& other = report_.findings[i];
      if (i == buffer || is_buffer_kind(other.id.kind) || !is_wrong(other)) continue;
      if (!is_of_whole_model && follows_from_[i] == buffer) return true;
      if (other.id.kind == Kind::kInput && is_handed_on(evidence_.candidate, id, other.id)) return true;
    }
    return false;
  }

  // Changes the verdicts of what is marked, and adds the questions; returns false where nothing is.
  bool ask() {
    if (std::none_of(reasons_.begin(), reasons_.end(), [](const auto& reason) { return reason.has_value(); })) {
      return false;
    }
    for (const Reason reason :
         {Reason::kOtherNames, Reason::kOtherMicrobatches, Reason::kOwnNumbers, Reason::kChangedAfter,
          Reason::kGuessedPlacement, Reason::kUnknownLossScale, Reason::kNearUnmeasured, Reason::kPossibleJump}) {
      const std::int64_t tensors = std::count(reasons_.begin(), reasons_.end(), reason);
      if (tensors == 0) continue;
      const std::size_t finding = first_of(reason);
      std::vector<Question>& questions = report_.explanation.questions;
      const auto asked = std::find_if(questions.begin(), questions.end(), [&](const Question& question) {
        return report_.findings[question.finding].reason == reason;
      });
      if (asked != questions.end()) {
        asked->tensors += tensors;
      } else {
        questions.push_back({finding, tensors, sentence_about(finding, reason)});
      }
    }
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      if (!reasons_[i]) continue;
      const bool stays_missing =
          *reasons_[i] == Reason::kOtherNames && report_.findings[i].verdict == Verdict::kMissing;
      if (!stays_missing) report_.findings[i].verdict = Verdict::kUntrusted;
      report_.findings[i].reason = *reasons_[i];
    }
    note_own_statistics();
    return true;
  }

 private:
  void note_own_statistics() {
    std::set<std::string> names;
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      if (reasons_[i] == Reason::kOwnStatistics) names.insert(printable(report_.findings[i].id.name));
    }
    if (names.empty()) return;
    report_.notes.push_back(
        fmt::format("buffers that each rank keeps for itself, and that nothing is proved of (running statistics of its "
                    "own samples, by the class of the module; constants; caches that each fills in part): {}",
                    comma_list(std::vector<std::string>(names.begin(), names.end()))));
  }

  // The first finding that is set aside for the reason; of guesses rather one that lacks, which no line would place.
  std::size_t first_of(Reason reason) const {
    if (reason == Reason::kPossibleJump) return *light_jump_;
    const auto first = static_cast<std::size_t>(std::find(reasons_.begin(), reasons_.end(), reason) - reasons_.begin());
    for (std::size_t i = first; i < reasons_.size(); ++i) {
      if (reasons_[i] == reason && report_.findings[i].verdict == Verdict::kMissing) return i;
    }
    return first;
  }

  // The listed root that the finding is, in this micro-batch or another, or is like; null where it is none.
  const RootCause* root_of(std::size_t i) const {
    if (follows_from_[i] != i) return nullptr;
    const TensorId& id = report_.findings[i].id;
    for (const RootCause& root : report_.explanation.roots) {
      const TensorId& other = report_.findings[root.finding].id;
      if (other.kind != id.kind || other.pass != id.pass) continue;
      const auto& alike = root.alike;
      if (other.name == id.name || std::find(alike.begin(), alike.end(), id.name) != alike.end()) return &root;
    }
    return nullptr;
  }

  // True where a root's error is that of a tensor which lies elsewhere. Samples in another order make nothing else
  // wrong, and neither do terms that the program adds up; terms that it forgets to add up do. Those of the forward pass
  // were added up where the loss is right, whatever is wrong behind it.
  bool is_other_placement(std::size_t origin, std::optional<Cause> cause) const {
    if (cause == Cause::kPermutedBlocks) return true;
    if (cause != Cause::kUnreduced) return false;
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      if (follows_from_[i] == origin && !report_.findings[i].guessed && may_follow(origin, i)) return false;
    }
    return true;
  }

  // True for a parameter whose few values tell no order, where others of its kind lie in one of their own.
  bool is_small_beside_open(const Finding& small, std::optional<Cause> cause) const {
    const LogicalTensor* tensor = find_tensor(evidence_.candidate, small.id);
    const bool is_small = tensor != nullptr && element_count(tensor->shape) < std::int64_t{kFewestValues};
    if (cause || !is_small || !is_parameter_kind(small.id.kind)) return false;
    return std::ranges::any_of(report_.findings, [&](const Finding& other) {
      return other.reason == Reason::kGuessedPlacement && other.id.kind == small.id.kind;
    });
  }

  static bool is_of_forward(Kind kind) { return kind == Kind::kInput || kind == Kind::kOutput; }

  // False for what is behind a loss that is right, and so behind no mistake of its forward pass.
  bool may_follow(std::size_t origin, std::size_t other) const {
    const TensorId& id = report_.findings[origin].id;
    return !is_of_forward(id.kind) || is_of_forward(report_.findings[other].id.kind) || !is_loss_right(id);
  }

  // True where the micro-batch has numbers of its own, and all of them pass.
  bool is_loss_right(const TensorId& id) const {
    const auto is_its_number = [&](const Finding& finding) {
      return finding.id.kind == Kind::kScalar && finding.id.iteration == id.iteration &&
             finding.id.microbatch == id.microbatch;
    };
    return std::any_of(report_.passed.begin(), report_.passed.end(), is_its_number) &&
           std::none_of(report_.findings.begin(), report_.findings.end(), is_its_number);
  }

  // True where ranks do not hold the same of what a step takes, or makes: whatever was drawn, they were to.
  static bool are_unequal_copies(const Finding& finding) {
    const Kind kind = finding.id.kind;
    return finding.reason == Reason::kReplicasDisagree && is_parameter_kind(kind) && !is_buffer_kind(kind) &&
           kind != Kind::kParamGrad;
  }

  // Marks what failed and follows from `origin`, itself included: for a guess, only what is guessed as well.
  void mark_followers(std::size_t origin, Reason reason) {
    constexpr double kMostRoundings = 64;  // that a beginning is off by, and what follows from it
    const bool is_rounding = begins_by_rounding(report_.findings[origin], evidence_);
    const auto is_near = [&](const Finding& finding) {
      return finding.difference && finding.allowed && largest_error_of(finding) <= kMostRoundings * *finding.allowed;
    };
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      const Finding& finding = report_.findings[i];
      if (follows_from_[i] != origin || reasons_[i] || !is_wrong(finding)) continue;
      if (reason == Reason::kGuessedPlacement && !may_follow(origin, i)) continue;
      const bool is_mistake = (!is_rounding && are_unequal_copies(finding)) || is_redrawn(finding.id, evidence_);
      if (reason == Reason::kOwnNumbers && is_mistake) continue;
      if (is_rounding && !is_near(finding)) continue;
      const bool differs_by_it = reason == Reason::kOwnNumbers && finding.verdict == Verdict::kFail;
      if (differs_by_it || finding.guessed) reasons_[i] = reason;
    }
  }

  // True for the rows of packed sequences that lie nowhere, beside numbers that say how they are packed.
  bool is_packed_in_open_order(const Finding& finding) const {
    if (find_tensor(evidence_.candidate, finding.id) != nullptr) return false;
    const std::set<TensorId>& local = evidence_.candidate.local;
    return std::any_of(local.begin(), local.end(),
                       [&](const TensorId& id) { return rows_of_packed(id) == finding.id; });
  }

  std::string describe_cut(std::int32_t iteration) const {
    const auto microbatches = [](std::int64_t count, std::int64_t samples) {
      const std::string each = samples == 0 ? "" : fmt::format(" of {}", count_of(samples, "sample"));
      return fmt::format("{} micro-batch{}{}", count, count == 1 ? "" : "es", each);
    };
    const auto joined = evidence_.candidate.joined.find(iteration);
    const CutOfBatch& cut = joined == evidence_.candidate.joined.end() ? cut_.at(iteration) : joined->second;
    if (!cut.is_same_batch) {
      return fmt::format(
          "iteration {}: the reference calls its model {} times, and the candidate {} times in all. Nothing says which "
          "call is which, and what they make cannot be compared; the gradients that steps take, updates and parameters "
          "are, and are right. To compare all of it, let both call it equally often, as with steps of a fixed size in "
          "place of those that a solver chooses",
          iteration, cut.reference, cut.candidate);
    }
    const std::string of_candidate = microbatches(cut.candidate, cut.candidate_samples);
    if (cut.candidate == cut.reference) {
      return fmt::format(
          "iteration {}: both run the batch in {}, of which the candidate's hold other samples of it than the "
          "reference's. What a micro-batch makes cannot be compared then; the gradients that steps take, updates and "
          "parameters are. To compare all of it, run the batch at once in the reference",
          iteration, of_candidate);
    }
    const std::string_view is_compared = joined == evidence_.candidate.joined.end()
                                             ? "What a micro-batch makes cannot be compared then; the gradients that "
                                               "steps take, updates and parameters are"
                                             : "What is made of all samples of a micro-batch, or padded to them, "
                                               "cannot be compared then; what has a row for each sample is";
    const auto others = other_samples(evidence_, iteration);
    return fmt::format(
        "iteration {}: the reference runs the batch in {}, the candidate in {}{}. {}. To compare all of it, run the "
        "reference in {} as well (its gradients accumulated), or the candidate in {}, of which each rank has a part",
        iteration, microbatches(cut.reference, cut.reference_samples), of_candidate,
        others ? "; " + others->sentence() : "", is_compared, of_candidate, cut.reference);
  }

  std::string sentence_about(std::size_t i, Reason reason) const {
    const Finding& finding = report_.findings[i];
    if (reason == Reason::kOtherNames && few_shared_names_) return *few_shared_names_;
    if (reason == Reason::kOtherNames) {
      return fmt::format(
          "{}: it has the values of the reference's {}. Both are in no module that is called, and go by the order of "
          "their first steps, which may be another here. To tell them apart, step them in the reference's order, or "
          "let each begin with a value of its own in both programs",
          to_string(finding.id), printable(other_of_no_module(finding, report_, evidence_).value_or("")));
    }
    if (reason == Reason::kOtherMicrobatches) {
      const std::int32_t iteration = finding.id.iteration;
      const bool is_cut = cut_.contains(iteration) || evidence_.candidate.joined.contains(iteration);
      return is_cut ? describe_cut(iteration) : describe_further_calls(finding, evidence_);
    }
    if (reason == Reason::kOwnNumbers && std::ranges::binary_search(states_.findings, i)) {
      return fmt::format(
          "{}. The ranks along {} have parts of a sequence, and the last one's copy is the reference's: so it is with "
          "the state in which each rank leaves its part, and hands it on. Where it is, leave out each rank's own by "
          "lines of the annotations: {}",
          finding.message, states_.axis, states_.lines);
    }
    if (reason == Reason::kOwnNumbers && find_tensor(evidence_.candidate, finding.id) == nullptr) {
      return fmt::format(
          "{}. In the reference the iteration changes it, of a model that no optimizer updates: a moving average or a "
          "teacher that the candidate forgets looks so. Where the candidate keeps it otherwise, record it on "
          "neither side (`ttrace collect --except '{}.**'`)",
          finding.message, printable(components_of(finding.id.name.get()).front()));
    }
    if (reason == Reason::kOwnNumbers && is_buffer_kind(finding.id.kind)) {
      return fmt::format(
          "{}. The iteration changes it, and nothing says whether its ranks are to agree: updated from their own "
          "samples without an all-reduce it is wrong. Where each rank is to have its own, a line of the annotations "
          "says so: {}: {{{}: local}}",
          finding.message, printable(finding.id.name), name_of(finding.id.kind));
    }
    if (reason == Reason::kOwnNumbers) {
      return fmt::format("{}: {}", to_string(finding.id), describe_own_numbers(finding, evidence_));
    }
    if (reason == Reason::kChangedAfter && finding.id.kind == Kind::kMainGrad) {
      return fmt::format(
          "{}: each rank has its own, and changes the parameter after its step, which then is right: so do programs "
          "that average parameters in place of gradients. Where it is meant, a line of the annotations says so: "
          "\"**\": {{main_grad: {{{}: mean}}}}",
          to_string(finding.id), axis_of(root_of(i)));
    }
    if (reason == Reason::kChangedAfter) {
      return fmt::format(
          "{}. Of {} nothing later was recorded, as of others it was, and something has changed the parameter after "
          "the step there, as where a rank has no further batch and is given the others' values. To compare, record "
          "the iterations alone of which every rank has a batch, but the last (`ttrace collect --iterations`, or "
          "`iterations` and `then` in a file of `ttrace run`)",
          finding.message, describe_ranks(ranks_that_ended_early(finding, evidence_)));
    }
    if (reason == Reason::kUnknownLossScale && finding.id.kind == Kind::kMainGrad) {
      return fmt::format(
          "{}: {:.4g} times the reference's. No optimizer has the parameter, which is right behind the step: the "
          "program steps with other tensors, and what it gives them of the gradient is not seen. Where it divides "
          "that, leave such gradients out by a line of the annotations: \"**\": {{{}: local}}",
          to_string(finding.id), whole_factor_of(finding), name_of(finding.id.kind));
    }
    if (reason == Reason::kUnknownLossScale && is_of_numbers_alone(finding, report_)) {
      return fmt::format(
          "{}: {:.4g} times the reference's, and its gradients and what its steps take are right, so no loss scale is "
          "wrong. Where the program multiplies this number alone, leave it out by a line of the annotations: {}: {{{}: "
          "local}}",
          to_string(finding.id), whole_factor_of(finding), printable(finding.id.name), name_of(finding.id.kind));
    }
    if (reason == Reason::kUnknownLossScale && is_of_some_alone(finding, report_)) {
      return fmt::format(
          "{}: {:.4g} times the reference's, as other gradients are not, and what its steps take is right: so it is "
          "where a backward adds up what all ranks send, as that of torch.distributed.nn.all_reduce, and the mean is "
          "taken afterwards. Where it is meant, leave it out by a line of the annotations: {}: {{{}: local}}",
          to_string(finding.id), whole_factor_of(finding), printable(finding.id.name), name_of(finding.id.kind));
    }
    if (reason == Reason::kUnknownLossScale) {
      return fmt::format(
          "{}: {:.4g} times the reference's, and what its steps take is right. Where the program scales its loss so, a "
          "line of the annotations says so: {}",
          to_string(finding.id), whole_factor_of(finding), loss_scale_line(finding, evidence_));
    }
    if (reason == Reason::kNearUnmeasured && is_unmoved(finding)) {
      return fmt::format(
          "{}. No perturbed run moved it, so that nothing tells how much of it is rounding: so it is where what was "
          "perturbed is rounded away (quantisation), and large terms nearly cancel. Expected tolerances for which "
          "every module is perturbed: `estimator: modules` in ttrace.yaml, or `--estimator modules`",
          finding.message);
    }
    if (reason == Reason::kNearUnmeasured && !report_.proof.unmeasured) {
      const double margin = report_.proof.margin.value_or(kDefaultMargin);
      return fmt::format(
          "{}. That is little in all of it, what its step makes is right, and nothing explains it: added up in "
          "another order, as no perturbed run does, a gradient may be off by as much. Where that is all, a larger "
          "margin says so: `margin: {:.0f}` in ttrace.yaml, or `ttrace estimate-tolerance --margin {:.0f}`",
          finding.message, margin * kDefaultMargin, margin * kDefaultMargin);
    }
    if (reason == Reason::kNearUnmeasured) {
      return fmt::format(
          "{}. Nobody measured what is allowed, it is exceeded by no more than {} times anywhere, and nothing explains "
          "the error: expected measured tolerances (`ttrace estimate-tolerance`)",
          finding.message, kDefaultMargin);
    }
    if (reason == Reason::kPossibleJump) {
      return fmt::format(
          "{}. It differs in one channel alone, as where rounding moves one activation over a kink (a ReLU's, an L1 "
          "loss's), and nothing else is wrong; in a light iteration no activation is recorded that would show it. To "
          "see, record it whole in both runs (`ttrace collect --iterations 0-{}`)",
          finding.message, finding.id.iteration);
    }
    if (finding.verdict == Verdict::kMissing) {
      return fmt::format(
          "{}. Each rank has its own samples under these numbers, and nothing tells which of the reference's they are. "
          "To compare, run each rank's samples as a micro-batch of the reference",
          finding.message);
    }
    if (is_packed_in_open_order(finding)) {
      return fmt::format(
          "{}. To compare, run each rank's samples as a micro-batch of the reference; or leave them out: {}: {{{}: "
          "local}}",
          finding.message, printable(finding.id.name), name_of(finding.id.kind));
    }
    if (finding.whole_in_part) {
      return fmt::format(
          "{}: each rank has a part of it whole, as what comes back of it shows, and a term of the rest, which nothing "
          "tells apart; no gradient of an output that comes back of it is wrong. To leave it out: {}: {{{}: local}}",
          to_string(finding.id), printable(finding.id.name), name_of(finding.id.kind));
    }
    const RootCause* root = root_of(i);
    // What does not fit together is said by the finding; a root that nothing explains says no more.
    const std::string what =
        root == nullptr || !root->diagnosis ? message_without_line(finding, evidence_) + "." : root->sentence;
    std::string text = fmt::format(
        "{} Its shape alone says where it lies: neither annotations nor the program nor the bytes of the inputs do. "
        "Where it is right, a line of the annotations says so: {}",
        what, line_for(finding, root, evidence_));
    if (!is_padded_by_shape(finding.id, evidence_) && !is_integer_input(finding.id, evidence_)) return text;
    return fmt::format("{}; or leave it out: {}: {{{}: local}}{}", text, printable(finding.id.name),
                       name_of(finding.id.kind), lines_of_other_numbers(i));
  }

  // The same line of other integer inputs that are asked about; empty where there are none.
  std::string lines_of_other_numbers(std::size_t asked) const {
    std::vector<std::string> names;  // in order of execution
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      const TensorId& id = report_.findings[i].id;
      const std::string name = printable(id.name);
      const bool is_other = reasons_[i] == Reason::kGuessedPlacement && is_integer_input(id, evidence_) &&
                            id.name != report_.findings[asked].id.name;
      if (is_other && std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
    return names.empty() ? "" : fmt::format(", and so of {}", comma_list(names));
  }

  Report& report_;
  std::span<const std::optional<std::size_t>> follows_from_;
  const Evidence& evidence_;
  std::vector<std::optional<Reason>> reasons_;              // by finding: why it is set aside
  std::optional<RightInLayers> right_in_layers_;            // once it is asked for
  std::map<TensorId, std::vector<const Entry*>> recorded_;  // by the candidate's ranks, once it is asked for
  std::map<std::int32_t, bool> other_batches_;              // by iteration: whether its samples are more or fewer
  std::optional<std::string> few_shared_names_;
  std::map<std::int32_t, CutOfBatch> cut_;  // by iteration
  HandedStates states_;
  std::optional<std::size_t> light_jump_;  // the finding that shows it
};

}  // namespace

bool set_questions_aside(Report& report, std::span<const std::optional<std::size_t>> follows_from,
                         const Evidence& evidence) {
  Questions questions(report, follows_from, evidence);
  questions.mark_names();
  questions.mark_microbatches();
  questions.mark_further_calls();
  questions.mark_own_numbers();
  questions.mark_handed_states();
  questions.mark_changed_after();
  questions.mark_loss_scales();
  questions.mark_guesses();
  questions.mark_buffers();
  questions.mark_near_unmeasured();
  questions.mark_light_jumps();
  if (!questions.ask()) return false;
  recount(report);
  return true;
}

}  // namespace ttrace
