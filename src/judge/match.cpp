#include "judge/match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "align/holders.h"
#include "align/recorded_bits.h"
#include "align/token_rows.h"
#include "base/count_of.h"
#include "base/describe.h"
#include "base/error.h"
#include "base/lookup.h"
#include "base/tensor_name.h"
#include "judge/choices.h"
#include "judge/extra_outputs.h"
#include "judge/judge.h"
#include "judge/lone_modules.h"
#include "numeric/convert.h"

namespace ttrace {
namespace {

enum class Side : std::uint8_t { kReference, kCandidate };

std::string_view name_of(Side side) { return side == Side::kReference ? "reference" : "candidate"; }

Side other_than(Side side) { return side == Side::kReference ? Side::kCandidate : Side::kReference; }

// Says how a side lacks a tensor.
enum class Lack : std::uint8_t {
  kMissing,
  kNotSeen,      // it says that it could not record it
  kNotRecorded,  // it holds less by design
};

Reason reason_for(Lack lack, Side side) {
  constexpr Reason kReasons[][2] = {{Reason::kMissingInReference, Reason::kMissingInCandidate},
                                    {Reason::kNotSeenInReference, Reason::kNotSeenInCandidate},
                                    {Reason::kNotRecordedInReference, Reason::kNotRecordedInCandidate}};
  return kReasons[static_cast<std::size_t>(lack)][static_cast<std::size_t>(side)];
}

TensorId forward_of(TensorId id) {
  id.pass = Pass::kForward;
  return id;
}

std::string describe_type(const LogicalTensor& tensor) {
  return fmt::format("{} {}", name_of(tensor.dtype), to_string(tensor.shape));
}

// True where one side is floating, and the other integer or bool.
bool is_of_two_forms(const TensorPair& pair) {
  return is_floating(pair.reference->dtype) != is_floating(pair.candidate->dtype);
}

// True where the values are those of a mask: true or false as 1 or 0, or what is added where it hides something and 0
// where it does not (-10000 in BERT, the least number of a dtype, minus infinity).
bool holds_mask(const LogicalTensor& tensor) {
  constexpr double kHidden = -1e4;
  constexpr std::int64_t kChunk = 4096;
  std::array<double, kChunk> values;
  std::set<const Entry*> seen;
  for (const Piece& piece : tensor.pieces()) {
    const Entry& entry = *piece.entry;
    if (!seen.insert(&entry).second) continue;
    if (entry.sketch) return false;
    const std::int64_t count = element_count(entry.shape);
    const std::byte* const first = piece.elements();
    for (std::int64_t begin = 0; begin < count; begin += kChunk) {
      const std::int64_t size = std::min(kChunk, count - begin);
      widen(first + begin * size_of(entry.dtype), entry.dtype, size, values.data());
      const auto is_masks = [](double value) { return value == 0 || value == 1 || value <= kHidden; };
      if (!std::all_of(values.begin(), values.begin() + size, is_masks)) return false;
    }
  }
  return true;
}

// True where one side is bool, and what the other holds is no mask: an activation, a loss, a gradient.
bool is_no_mask(const TensorPair& pair) {
  const auto is_so = [](const LogicalTensor& masks, const LogicalTensor& other) {
    return masks.dtype == Dtype::kBool && is_floating(other.dtype) && !holds_mask(other);
  };
  return is_so(*pair.reference, *pair.candidate) || is_so(*pair.candidate, *pair.reference);
}

// Returns a finding when the shapes or dtypes rule a comparison out. `sides` are the words for the two in its message.
// What a program counts, or masks with, may be integer, bool or floating: its values are compared. Not so a parameter's,
// nor what is bool on one side and holds other values than a mask's on the other.
std::optional<Finding> find_mismatch(const TensorPair& pair, std::pair<std::string_view, std::string_view> sides) {
  const LogicalTensor& a = *pair.reference;
  const LogicalTensor& b = *pair.candidate;
  const bool other_shape = a.shape != b.shape;
  const bool is_parameters = is_parameter_kind(b.id.kind) && !is_buffer_kind(b.id.kind);
  if (!other_shape && !(is_of_two_forms(pair) && (is_parameters || is_no_mask(pair)))) return std::nullopt;
  Finding finding = finding_about(
      b, Verdict::kFail, other_shape ? Reason::kShapeMismatch : Reason::kDtypeMismatch,
      fmt::format("{} {}, {} {}{}", sides.first, describe_type(a), sides.second, describe_type(b), placing_of(b)));
  finding.ranks = ranks_holding(b);
  return finding;
}

// Returns a finding when the candidate holds a parameter's tensor in a dtype of fewer digits than the reference's:
// weights or gradients that should be fp32 round away what they are there to keep, while no value is off by more than
// rounding. What an optimizer holds is left to the check of its step.
std::optional<Finding> find_narrower(const TensorPair& pair, const std::set<Kind>& allowed) {
  const LogicalTensor& a = *pair.reference;
  const LogicalTensor& b = *pair.candidate;
  const Kind kind = b.id.kind;
  if (!is_parameter_kind(kind) || is_optimizer_state(kind) || is_buffer_kind(kind) || allowed.contains(kind)) {
    return std::nullopt;
  }
  if (!is_floating(a.dtype) || !is_floating(b.dtype) || epsilon_of(b.dtype) <= epsilon_of(a.dtype)) return std::nullopt;
  Finding finding =
      finding_about(b, Verdict::kFail, Reason::kDtypeMismatch,
                    fmt::format("the reference has {}, the candidate {}, which is narrower; where that is meant, "
                                "write `parallelism: {{narrower: [{}]}}` in the annotations",
                                name_of(a.dtype), name_of(b.dtype), name_of(kind)));
  finding.ranks = ranks_holding(b);
  return finding;
}

// Collects the pairs of dtypes that differ, and writes one note for each: how many tensors, and the first of them.
class DtypeNotes {
 public:
  void add(const TensorPair& pair) {
    if (pair.reference->dtype == pair.candidate->dtype) return;
    auto& [count, first] = seen_[{pair.reference->dtype, pair.candidate->dtype}];
    if (count++ == 0) first = to_string(pair.candidate->id);
  }
  void write(std::vector<std::string>& notes) const {
    for (const auto& [dtypes, use] : seen_) {
      notes.push_back(fmt::format("{} in the reference is {} in the candidate: {}, such as {}", name_of(dtypes.first),
                                  name_of(dtypes.second), count_of(use.first, "tensor"), use.second));
    }
  }

 private:
  std::map<std::pair<Dtype, Dtype>, std::pair<std::int64_t, std::string>> seen_;
};

bool has_buffers(const Alignment& alignment) {
  return std::any_of(alignment.tensors.begin(), alignment.tensors.end(),
                     [](const auto& item) { return is_buffer_kind(item.first.kind); });
}

// Collects buffers that one side alone has, which are no error by themselves, and writes one note for each side.
// Implementations differ in what they keep (masks, tables), and what they compute with it is compared; of what an older
// ttrace or another recorder recorded there are none.
class LoneBuffers {
 public:
  // True for a buffer of the reference's model that the iteration leaves as it is, or where the candidate has none at
  // all: what a model carries on it must not lose, nor a moving average of it.
  bool may_be_missing(const Alignment& reference, const Alignment& candidate, const TensorId& id) {
    if (!candidate_has_any_) candidate_has_any_ = has_buffers(candidate);
    return !is_of_other_model(reference, id) && (!*candidate_has_any_ || is_constant_buffer(reference, id));
  }

  // True for what the iteration changes in the candidate alone, and the reference changes in another iteration: a target
  // network that is copied a step early.
  bool moves_out_of_turn(const Alignment& reference, const TensorId& id) {
    if (id.kind != Kind::kBufferAfter) return false;
    if (!moving_) {
      moving_.emplace();
      for (const auto& [other, tensor] : reference.tensors) {
        if (other.kind == Kind::kBufferAfter) moving_->insert(other.name);
      }
    }
    return moving_->contains(id.name);
  }

  // What the candidate lacks after an iteration that changes it in the reference it does not update there. Where no
  // iteration of the candidate's changes it, it may not have it at all.
  std::string describe_missing(const Alignment& candidate, const TensorId& id) {
    if (!updated_) {
      updated_.emplace();
      for (const auto& [other, tensor] : candidate.tensors) {
        if (other.kind == Kind::kBufferAfter) updated_->insert(other.name);
      }
    }
    return fmt::format("not updated by the candidate{}; the reference updates it",
                       updated_->contains(id.name) ? "" : " in any iteration, or not there");
  }

  // Returns how many tensors it has waived.
  std::int64_t waive(const LogicalTensor& tensor, Side side) {
    names_[side].insert(printable(tensor.id.name));
    return 1;
  }

  void write(std::vector<std::string>& notes) const {
    for (const auto& [side, names] : names_) {
      notes.push_back(fmt::format("waived: {} buffer{} that the {} alone has: {}", names.size(),
                                  names.size() == 1 ? "" : "s", name_of(side),
                                  comma_list(std::vector<std::string>(names.begin(), names.end()))));
    }
  }

 private:
  std::optional<bool> candidate_has_any_;
  std::optional<std::set<std::string>> moving_;   // names of those that the reference changes in some iteration
  std::optional<std::set<std::string>> updated_;  // and the candidate
  std::map<Side, std::set<std::string>> names_;
};

void note_model_size(const Matching& matching, std::vector<std::string>& notes) {
  const auto is_parameter = [](const TensorId& id) { return id.kind == Kind::kParam; };
  const auto other = std::count_if(matching.findings.begin(), matching.findings.end(), [&](const Finding& finding) {
    return finding.reason == Reason::kShapeMismatch && is_parameter(finding.id);
  });
  const bool some_fit = std::any_of(matching.pairs.begin(), matching.pairs.end(),
                                    [&](const TensorPair& pair) { return is_parameter(pair.candidate->id); });
  if (other > 0 && !some_fit) {
    notes.push_back(
        fmt::format("every parameter has another shape than in the reference ({} of them): a model of "
                    "another size, or annotations that do not say how it is split",
                    other));
  }
}

// One micro-batch of the reference is one of the candidate; where their numbers differ, most is missing or has another
// shape, and this says why.
void note_microbatches(const Alignment& reference, const Alignment& candidate, std::vector<std::string>& notes) {
  const auto of_candidate = microbatch_counts(candidate);
  for (const auto& [iteration, count] : microbatch_counts(reference)) {
    const auto other = of_candidate.find(iteration);
    if (other == of_candidate.end() || other->second == count) continue;
    notes.push_back(fmt::format(
        "iteration {}: the reference ran {} micro-batch{}, the candidate {} in all; expected the same ones: "
        "a reference with {}, or a candidate whose ranks run {} each, of slices of its samples "
        "(microbatches: {{order: slices}})",
        iteration, count, count == 1 ? "" : "es", other->second, other->second, count));
    return;
  }
}

std::string describe_holdings(const Alignment& alignment) {
  if (alignment.tensors.empty()) return "no whole tensor";
  std::set<std::int32_t> iterations, microbatches;
  const LogicalTensor* first = nullptr;
  for (const auto& [id, tensor] : alignment.tensors) {
    iterations.insert(id.iteration);
    if (id.microbatch != kNoMicrobatch) microbatches.insert(id.microbatch);
    if (first == nullptr || tensor.order < first->order) first = &tensor;
  }
  return fmt::format("{} of iteration {}, micro-batch {}, such as {}", count_of(alignment.tensors.size(), "tensor"),
                     fmt::join(iterations, " "),
                     microbatches.empty() ? "-" : fmt::format("{}", fmt::join(microbatches, " ")),
                     to_string(first->id));
}

[[noreturn]] void throw_nothing_in_common(const Alignment& reference, const Alignment& candidate) {
  throw InputError(
      fmt::format("reference and candidate: no tensor in common: the reference holds {}; the candidate holds {}; "
                  "expected two runs of one model, with the same names and iterations",
                  describe_holdings(reference), describe_holdings(candidate)));
}

// Keeps two tensors that were made of a pair's.
TensorPair keep(std::pair<LogicalTensor, LogicalTensor> made, Matching& matching) {
  const auto& reference =
      matching.common_rows.emplace_back(std::make_shared<const LogicalTensor>(std::move(made.first)));
  const LogicalTensor* kept = reference.get();
  const auto& candidate =
      matching.common_rows.emplace_back(std::make_shared<const LogicalTensor>(std::move(made.second)));
  return {kept, candidate.get()};
}

// Leaves out of the reference's tensor what the candidate's ranks have not: the padding behind the longest of their own
// samples.
TensorPair without_cut_padding(const TensorPair& pair, Matching& matching) {
  const bool is_cut = pair.reference != nullptr && pair.candidate->kept != nullptr;
  if (!is_cut || !has_whole_shape(*pair.reference, *pair.candidate->kept)) return pair;
  const auto& reference = matching.common_rows.emplace_back(
      std::make_shared<const LogicalTensor>(cut_like(*pair.reference, *pair.candidate->kept)));
  return {reference.get(), pair.candidate};
}

// Reduces a pair of tensors of routed tokens to the rows that both hold, less the tokens that a router anywhere in the
// model sent elsewhere: such a token has another value from there on. `reroutes` report it.
TensorPair with_common_rows(const TensorPair& pair, Matching& matching) {
  if (!pair.reference->rows || !pair.candidate->rows) return pair;
  std::vector<std::int64_t> rows;
  std::set_intersection(pair.reference->rows->begin(), pair.reference->rows->end(), pair.candidate->rows->begin(),
                        pair.candidate->rows->end(), std::back_inserter(rows));
  std::erase_if(rows, [&, &reference = *pair.reference](std::int64_t row) {
    return std::any_of(matching.reroutes.begin(), matching.reroutes.end(), [&](const Reroute& reroute) {
      return reroute.token == token_of(reference, row) && reroute.logits.iteration == pair.reference->id.iteration &&
             reroute.logits.microbatch == pair.reference->id.microbatch;
    });
  });
  return keep({keep_rows(*pair.reference, rows), keep_rows(*pair.candidate, rows)}, matching);
}

// Does the same for all tensors with a row for each token.
TensorPair with_common_tokens(const TensorPair& pair, const RecordedChoices& choices, Matching& matching) {
  auto changed = choices.with_common_tokens(pair);
  if (!changed) return with_common_rows(pair, matching);
  matching.without_rerouted.insert(pair.candidate->id);
  return keep(std::move(*changed), matching);
}

// A tensor that `side` lacks, or holds in part. It is missing unless the side says that it could not record it, or that
// it holds less by design.
Finding finding_about_lack(const LogicalTensor& tensor, Side side, const Alignment& lacking) {
  const std::string held = fmt::format("the {} has {}", name_of(other_than(side)), describe_type(tensor));
  const NotSeenTensors::Reason* reason = lacking.not_seen.reason_of(tensor.id);
  if (reason != nullptr && !reason->by_design) {
    return finding_about(tensor, Verdict::kNotSeen, reason_for(Lack::kNotSeen, side),
                         fmt::format("not seen in the {}: {}; {}", name_of(side), reason->text, held));
  }
  if (reason != nullptr || lacking.not_seen.covers_everything()) {
    return finding_about(tensor, Verdict::kNotSeen, reason_for(Lack::kNotRecorded, side),
                         fmt::format("not recorded in the {}, which holds less by design; {}", name_of(side), held));
  }
  return finding_about(tensor, Verdict::kMissing, reason_for(Lack::kMissing, side),
                       fmt::format("not in the {}; {}", name_of(side), held));
}

// A tensor of which some ranks of `side` recorded their part, and others said that they could not.
Finding finding_about_part(Finding finding, Side side, const Alignment& lacking) {
  const NotSeenTensors::Reason& reason = *lacking.not_seen.reason_of(finding.id);
  finding.verdict = Verdict::kNotSeen;
  finding.reason = reason_for(reason.by_design ? Lack::kNotRecorded : Lack::kNotSeen, side);
  finding.message = fmt::format("{}: not {} by all ranks of the {}: {}", to_string(finding.id),
                                reason.by_design ? "recorded" : "seen", name_of(side), reason.text);
  return finding;
}

constexpr std::string_view kUnfitSketches = "sketches whose cells do not fit (record such tensors whole: --whole)";

// Collects why tensors were not seen, and writes one note for each reason: how many tensors, and the first of them.
void note_not_seen(const Alignment& reference, const Alignment& candidate, Matching& matching) {
  constexpr std::size_t kMostReasons = 10;
  struct Use {
    std::int64_t tensors = 0;
    std::string first;
  };
  std::map<std::pair<Side, std::string>, Use> uses;
  for (const auto& [side, lacking] : {std::pair(Side::kReference, &reference), {Side::kCandidate, &candidate}}) {
    for (const Finding& finding : matching.findings) {
      if (finding.reason != reason_for(Lack::kNotSeen, side)) continue;
      const NotSeenTensors::Reason* said = lacking->not_seen.reason_of(finding.id);
      // Else it is there, as a sketch that says nothing.
      Use& use = uses[{side, said == nullptr ? std::string(kUnfitSketches) : said->text}];
      if (use.tensors++ == 0) use.first = to_string(finding.id);
    }
  }
  std::size_t written = 0;
  for (const auto& [key, use] : uses) {
    if (written++ == kMostReasons) break;
    matching.notes.push_back(fmt::format("not seen in the {}: {}: {}, such as {}", name_of(key.first), key.second,
                                         count_of(use.tensors, "tensor"), use.first));
  }
  if (uses.size() > kMostReasons) {
    matching.notes.push_back(
        fmt::format("not seen for {} further reasons, which --json lists", uses.size() - kMostReasons));
  }
}

// Notes what neither side has, since the candidate's recorder could not record it: no finding says so. Whole models have
// a note of their own (align/notes.h), and what an optimizer steps beside the model's parameters are masters of these.
void note_seen_by_neither(const Alignment& reference, const Alignment& candidate, Matching& matching) {
  if (candidate.not_seen.statements().empty()) return;
  std::set<std::pair<std::string, Kind>> seen;
  const auto see = [&](const TensorId& id) { seen.emplace(TensorName(id.name.get()).path, id.kind); };
  for (const Alignment* side : {&reference, &candidate}) {
    for (const auto& [id, tensor] : side->tensors) see(id);
  }
  for (const Finding& finding : matching.findings) see(finding.id);
  std::map<std::string, std::vector<std::string>> unseen;  // by reason
  for (const auto& [path, statements] : candidate.not_seen.statements()) {
    for (const NotSeenTensors::Statement& statement : statements) {
      if (path.starts_with('(') && (path != kRootModule || statement.tensor.empty())) continue;
      const auto is_seen = [&](Kind kind) { return seen.contains({path, kind}); };
      if (statement.reason.by_design || std::ranges::any_of(statement.kinds, is_seen)) continue;
      std::vector<std::string>& names = unseen[statement.reason.text];
      std::string name = statement.tensor.empty()
                             ? "calls of " + printable(path)
                             : fmt::format("{} of {}", name_of(*statement.kinds.begin()), printable(statement.tensor));
      if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
    }
  }
  for (const auto& [reason, names] : unseen) {
    matching.notes.push_back(
        fmt::format("recorded in neither run, and not compared: {}: {}", printable(reason), comma_list(names)));
  }
}

// Says of each side that holds less by design why, and how much of the other side is not in it: by kind, since what is
// left of a kind decides nothing about those of which nothing was recorded.
std::string describe_partial(const Alignment& reference, const Alignment& candidate,
                             const std::vector<Finding>& findings) {
  std::vector<std::string> sentences;
  for (const auto& [side, partial] : {std::pair(Side::kReference, &reference), {Side::kCandidate, &candidate}}) {
    const std::set<std::string>& reasons = partial->not_seen.reasons_by_design();
    if (reasons.empty()) continue;
    std::map<Kind, std::int64_t> kinds;
    std::int64_t tensors = 0;
    for (const Finding& finding : findings) {
      if (finding.reason != reason_for(Lack::kNotRecorded, side)) continue;
      ++kinds[finding.id.kind];
      ++tensors;
    }
    std::vector<std::string> counts;
    for (const auto& [kind, count] : kinds) counts.push_back(fmt::format("{} {}", count, name_of(kind)));
    sentences.push_back(fmt::format("the {} holds less by design ({})", name_of(side), fmt::join(reasons, "; ")));
    if (tensors == 0) continue;  // the other holds no more
    sentences.back() += fmt::format(": of the {}, {} not recorded in it: {}", name_of(other_than(side)),
                                    count_of(tensors, "tensor"), fmt::join(counts, ", "));
  }
  return fmt::format("{}", fmt::join(sentences, "; "));
}

// A finding where sketches do not say what the tensors differ by.
std::optional<Finding> find_unseen(const TensorPair& pair) {
  if (!pair.reference->sketched && !pair.candidate->sketched) return std::nullopt;
  const std::string why =
      is_of_two_forms(pair) ? "one is a sketch, and the other no floating-point tensor" : why_not_by_sketches(pair);
  if (why.empty()) return std::nullopt;
  Finding finding =
      finding_about(*pair.candidate, Verdict::kNotSeen,
                    reason_for(Lack::kNotSeen, pair.candidate->sketched ? Side::kCandidate : Side::kReference),
                    fmt::format("not seen: {}; to compare it, record it whole (`ttrace collect --whole`)", why));
  finding.ranks = ranks_holding(*pair.candidate);
  return finding;
}

// Notes how much of optimizers' state one side alone has recorded.
void note_lone_state(std::int64_t tensors, Matching& matching) {
  if (tensors == 0) return;
  matching.waived += tensors;
  matching.notes.push_back(
      fmt::format("waived: {} of optimizers' state that one side alone had to record for the sake "
                  "of its steps",
                  count_of(tensors, "tensor")));
}

// Pairs each of the candidate's tensors with the reference's, and a recomputed one with its first forward as well.
// Returns how many are an optimizer's state that the reference lacks.
std::int64_t pair_candidates(const Alignment& reference, const Alignment& candidate, const std::set<Kind>& narrower,
                             const RecordedChoices& choices, LoneBuffers& buffers, Matching& matching) {
  DtypeNotes dtypes;
  std::int64_t unseen_in_light = 0, lone_state = 0;
  for (const auto& [id, tensor] : candidate.tensors) {
    const TensorPair pair = without_cut_padding({counterpart(reference, id), &tensor}, matching);
    if (pair.reference == nullptr && is_optimizer_state(id.kind)) {
      ++lone_state;
    } else if (pair.reference == nullptr && is_buffer_kind(id.kind) && !buffers.moves_out_of_turn(reference, id)) {
      matching.waived += buffers.waive(tensor, Side::kCandidate);
    } else if (pair.reference == nullptr) {
      Finding finding = finding_about_lack(tensor, Side::kReference, reference);
      finding.ranks = ranks_holding(tensor);
      matching.findings.push_back(std::move(finding));
    } else if (auto mismatch = find_mismatch(pair, {"the reference has", "the candidate"})) {
      matching.findings.push_back(std::move(*mismatch));
    } else if (auto unseen = find_unseen(pair)) {
      if (pair.reference->light || pair.candidate->light) {  // nobody chose to sketch it
        ++unseen_in_light;
      } else {
        matching.findings.push_back(std::move(*unseen));
      }
    } else {
      dtypes.add(pair);
      if (auto narrowed = find_narrower(pair, narrower)) matching.findings.push_back(std::move(*narrowed));
      matching.pairs.push_back(with_common_tokens(pair, choices, matching));
    }
    if (id.pass != Pass::kRecompute) continue;
    const TensorPair recomputation{find_tensor(candidate, forward_of(id)), &tensor};
    if (recomputation.reference == nullptr) continue;
    if (auto mismatch = find_mismatch(recomputation, {"the candidate's first forward has", "its recomputation"})) {
      matching.findings.push_back(std::move(*mismatch));
    } else if (auto unseen = find_unseen(recomputation)) {
      matching.findings.push_back(std::move(*unseen));
    } else {
      matching.recomputed.push_back(with_common_rows(recomputation, matching));
    }
  }
  dtypes.write(matching.notes);
  if (unseen_in_light == 0) return lone_state;
  matching.waived += unseen_in_light;
  matching.notes.push_back(
      fmt::format("waived: {} of light iterations, whose sketches do not show what they differ by: shards end within a "
                  "cell, or are cut otherwise (`collect --iterations` records them whole)",
                  count_of(unseen_in_light, "tensor")));
  return lone_state;
}

// True for a further call of a module, or a further element of a list that it is given, where the candidate's ranks ran
// slices and hold the first: each rank may have its own of them, under the same numbers.
bool may_be_of_other_slice(const TensorId& id, const Alignment& candidate, const std::set<TensorId>& incomplete) {
  const bool is_activation = id.kind == Kind::kInput || id.kind == Kind::kOutput || id.kind == Kind::kGradInput ||
                             id.kind == Kind::kGradOutput;
  if (!candidate.slices || !is_activation || id.microbatch < 0) return false;
  const TensorName name(id.name);
  const auto holds = [&](std::string first) {
    TensorId other = id;
    other.name = std::move(first);
    return other.name != id.name && (candidate.tensors.contains(other) || incomplete.contains(other));
  };
  if (!name.call.empty()) return holds(fmt::format("{}{}", name.path, name.member));
  if (name.member.empty()) return false;
  std::vector<std::string> elements = components_of(name.member.substr(1));
  for (std::string& element : elements) {
    if (element.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string number = std::exchange(element, "0");
    if (holds(fmt::format("{}:{}", name.path, fmt::join(elements, ".")))) return true;
    element = number;
  }
  return false;
}

// True for the gradient of an input of a call that gives none to its outputs, as a miner's under no_grad(): what the input
// has of a gradient comes of other uses of the tensor, which another program may copy before.
bool is_gradient_of_others(const Alignment& alignment, const TensorId& id) {
  return id.kind == Kind::kGradInput && has_any_of_call(alignment, id, Kind::kOutput) &&
         !has_any_of_call(alignment, id, Kind::kGradOutput);
}

// Finds what only the reference holds. `incomplete` names tensors that the candidate holds in part: there is a finding
// about them already. Returns how many are an optimizer's state.
std::int64_t find_missing(const Alignment& reference, const Alignment& candidate, const std::set<TensorId>& incomplete,
                          LoneBuffers& buffers, Matching& matching) {
  std::int64_t recomputed = 0, lone_state = 0, of_others = 0;
  const auto holds = [&](const TensorId& id) { return candidate.tensors.contains(id) || incomplete.contains(id); };
  for (const auto& [id, tensor] : reference.tensors) {
    if (holds(id) || candidate.local.contains(id)) continue;
    // The state of an optimizer is recorded for the sake of its step, where that needs it, and follows from that.
    if (is_optimizer_state(id.kind)) {
      ++lone_state;
      continue;
    }
    if (is_buffer_kind(id.kind) && buffers.may_be_missing(reference, candidate, id)) {
      matching.waived += buffers.waive(tensor, Side::kReference);
      continue;
    }
    // A program chooses for the sake of memory which activations it recomputes; their values are the forward's. The
    // forward is compared, and so are the gradients, which a wrong recomputation would spoil.
    if (id.pass == Pass::kRecompute && holds(forward_of(id))) {
      ++recomputed;
      continue;
    }
    if (is_gradient_of_others(reference, id)) {
      ++of_others;
      continue;
    }
    Finding& finding = matching.findings.emplace_back(finding_about_lack(tensor, Side::kCandidate, candidate));
    finding.guessed = may_be_of_other_slice(id, candidate, incomplete);
    if (finding.verdict == Verdict::kMissing && is_of_other_model(reference, id)) {
      finding.message = fmt::format("{}: {}", to_string(id), buffers.describe_missing(candidate, id));
    }
  }
  matching.waived += recomputed + of_others;
  if (of_others > 0) {
    matching.notes.push_back(
        fmt::format("waived: {} of inputs of modules that compute without gradient in the reference, whose tensors get "
                    "them elsewhere; the candidate gives such modules copies",
                    count_of(of_others, "gradient")));
  }
  if (recomputed > 0) {
    matching.notes.push_back(
        fmt::format("waived: {} that the reference recomputed and the candidate did not; "
                    "their first forward is compared",
                    count_of(recomputed, "tensor")));
  }
  return lone_state;
}

// Waives, on both sides, the tensors that are local to a rank, as annotations or the numbers in them say.
void waive_local(const Alignment& reference, const Alignment& candidate, Matching& matching) {
  std::set<TensorId> local = reference.local;
  local.insert(candidate.local.begin(), candidate.local.end());
  if (local.empty()) return;
  matching.waived += static_cast<std::int64_t>(local.size());
  std::set<std::string> names;
  for (const TensorId& id : local) names.insert(printable(id.name));
  matching.notes.push_back(fmt::format("waived, as local to a rank: {}: {}", count_of(local.size(), "tensor"),
                                       comma_list(std::vector<std::string>(names.begin(), names.end()))));
}

}  // namespace

const LogicalTensor* counterpart(const Alignment& reference, const TensorId& id) {
  const LogicalTensor* same = find_tensor(reference, id);
  return same != nullptr || id.pass == Pass::kForward ? same : find_tensor(reference, forward_of(id));
}

Matching match(const Alignment& reference, const Alignment& candidate, const std::set<Kind>& narrower) {
  Matching matching;
  matching.padded_shorter = candidate.padded_shorter;
  std::set<TensorId> incomplete;
  bool in_common = false;
  for (const Finding& finding : candidate.findings) {
    matching.findings.push_back(
        is_not_seen(candidate, finding) ? finding_about_part(finding, Side::kCandidate, candidate) : finding);
    if (finding.id.name.empty()) continue;
    incomplete.insert(finding.id);
    in_common = in_common || counterpart(reference, finding.id) != nullptr;
  }
  for (const auto& [id, tensor] : candidate.tensors) {
    in_common = in_common || counterpart(reference, id) != nullptr;
  }
  // Where one side holds nothing (of what --only asks for), the report lists everything as missing.
  const bool both_hold = !reference.tensors.empty() && !(candidate.tensors.empty() && incomplete.empty());
  if (!in_common && both_hold) throw_nothing_in_common(reference, candidate);
  RecordedChoices choices(reference, candidate);
  matching.reroutes = find_reroutes(reference, candidate);
  choices.report_to(matching.reroutes);
  LoneBuffers buffers;
  std::int64_t lone_state = pair_candidates(reference, candidate, narrower, choices, buffers, matching);
  lone_state += find_missing(reference, candidate, incomplete, buffers, matching);
  note_lone_state(lone_state, matching);
  buffers.write(matching.notes);
  // The candidate's tensors that the reference holds in part were found above.
  for (const Finding& finding : reference.findings) {
    const bool found =
        finding.id.name.empty() || candidate.tensors.contains(finding.id) || incomplete.contains(finding.id);
    if (!found) matching.findings.push_back(finding_about_part(finding, Side::kReference, reference));
  }
  waive_lone_modules(reference, candidate, matching);
  waive_extra_outputs(reference, candidate, matching);
  waive_extra_scalars(reference, matching);
  note_not_seen(reference, candidate, matching);
  note_seen_by_neither(reference, candidate, matching);
  matching.partial = describe_partial(reference, candidate, matching.findings);
  waive_local(reference, candidate, matching);
  note_model_size(matching, matching.notes);
  note_microbatches(reference, candidate, matching.notes);
  return matching;
}

void keep_only(Alignment& reference, Alignment& candidate, const std::string& pattern) {
  bool found = false;
  for (Alignment* side : {&reference, &candidate}) {
    std::erase_if(side->tensors, [&](const auto& item) { return !matches(pattern, item.first.name); });
    std::erase_if(side->findings, [&](const Finding& finding) {
      return !finding.id.name.empty() && !matches(pattern, finding.id.name);
    });
    found = found || !side->tensors.empty() ||
            std::any_of(side->findings.begin(), side->findings.end(),
                        [](const Finding& finding) { return !finding.id.name.empty(); });
  }
  if (!found) {
    throw InputError(
        fmt::format("--only '{}': no tensor's name matches; expected a name, what follows one of its dots, "
                    "or a glob",
                    pattern));
  }
}

void keep_iterations(Alignment& reference, Alignment& candidate, const std::set<std::int32_t>& iterations) {
  for (const auto& [name, side] : {std::pair("reference", &reference), std::pair("candidate", &candidate)}) {
    std::set<std::int32_t> there;
    for (const auto& [id, tensor] : side->tensors) there.insert(id.iteration);
    std::erase_if(side->tensors, [&](const auto& item) { return !iterations.contains(item.first.iteration); });
    std::erase_if(side->findings, [&](const Finding& finding) {
      return !finding.id.name.empty() && !iterations.contains(finding.id.iteration);
    });
    if (side->tensors.empty()) {
      throw InputError(fmt::format("--iterations {}: the {} has none of them; expected some of {}",
                                   fmt::join(iterations, ","), name, fmt::join(there, ",")));
    }
  }
}

}  // namespace ttrace
