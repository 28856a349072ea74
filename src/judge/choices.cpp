#include "judge/choices.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "align/lookup.h"
#include "align/tokens.h"
#include "judge/slots.h"
#include "merge/region.h"
#include "merge/values.h"
#include "ttrace/judge/match.h"
#include "ttrace/numeric/dtype.h"
#include "ttrace/tensor_name.h"

namespace ttrace {
namespace {

// A choice is proved where the scores of unrelated numbers would give the same one with a chance of at most 2^-32.
constexpr double kProofBits = 32;
// So many of the tensors that are nearest by name are tried as a router's scores.
constexpr std::size_t kMostTrials = 16;
constexpr std::int64_t kMostExperts = 1 << 16;
constexpr std::int64_t kFirstTokens = 16;  // which tell most tensors that are no scores

std::int64_t slots_of(const LogicalTensor& choice) { return choice.shape.back(); }
std::int64_t tokens_of(const LogicalTensor& choice) { return element_count(choice.shape) / slots_of(choice); }

bool is_activation(Kind kind) { return kind == Kind::kInput || kind == Kind::kOutput; }
bool is_of_output(Kind kind) { return kind == Kind::kOutput || kind == Kind::kGradOutput; }

bool may_be_choice(const LogicalTensor& tensor) {
  const bool is_number = tensor.dtype == Dtype::kInt64 || tensor.dtype == Dtype::kInt32;
  return is_activation(tensor.id.kind) && is_number && tensor.shape.size() >= 2 && element_count(tensor.shape) > 0 &&
         !tensor.rows && !tensor.sketched;
}

bool may_be_scores(const LogicalTensor& tensor) {
  return is_activation(tensor.id.kind) && tensor.id.pass == Pass::kForward && is_floating(tensor.dtype) &&
         has_rows(tensor) && tensor.shape.back() <= kMostExperts && !tensor.rows && !tensor.sketched;
}

// log2 of the number of ways to choose.
double bits_of_choice(std::int64_t experts, std::int64_t slots) {
  const auto log_factorial = [](std::int64_t n) { return std::lgamma(static_cast<double>(n) + 1); };
  return (log_factorial(experts) - log_factorial(slots) - log_factorial(experts - slots)) / std::log(2.0);
}

// Whether the router chooses these experts, [tokens, slots], for its first tokens, and how many bits that proves.
struct Agreement {
  bool agrees = true;
  double bits = 0;
};

Agreement agreement_of(const Router& router, const Values& scores, std::span<const double> experts,
                       std::int64_t slots) {
  const auto count = static_cast<std::size_t>(router.scores->shape.back());
  const ExpertGroups groups = groups_of(router);
  const double bits = bits_of_choice(static_cast<std::int64_t>(count), slots);
  const double rounding = epsilon_of(router.scores->dtype);
  Agreement agreement;
  for (std::size_t token = 0; token < scores.size() / count; ++token) {
    const std::span<const double> row(scores.data() + token * count, count);
    const std::span<const double> chosen =
        experts.subspan(token * static_cast<std::size_t>(slots), static_cast<std::size_t>(slots));
    const ChosenExperts numbers(chosen.begin(), chosen.end());
    const double norm = std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0));
    agreement.agrees = static_cast<std::int64_t>(numbers.size()) == slots && std::isfinite(norm) &&
                       move_to_choose(row, groups, numbers) <= rounding * norm;
    if (!agreement.agrees) break;
    const auto [lowest, highest] = std::minmax_element(row.begin(), row.end());
    if (*lowest < *highest) agreement.bits += bits;
  }
  return agreement;
}

// The scores' rows of the first tokens, which lie next to each other in a program's memory.
LogicalTensor first_rows_of(const LogicalTensor& scores) {
  Box box = whole_box(scores.shape);
  std::fill(box.size.begin(), box.size.end() - 2, 1);
  std::int64_t& tokens = box.size.end()[-2];
  tokens = std::min(tokens, kFirstTokens);
  return region_of(scores, box);
}

bool is_proved_by(const Router& router, const Values& experts, std::int64_t slots) {
  const auto agreement_with = [&](const LogicalTensor& scores) {
    return agreement_of(router, values_of(scores), experts, slots);
  };
  if (!agreement_with(first_rows_of(*router.scores)).agrees) return false;
  const Agreement agreement = agreement_with(*router.scores);
  return agreement.agrees && agreement.bits >= kProofBits;
}

// For each of the candidate's slots, the reference's slot that holds the same expert; nothing where they hold others.
std::optional<std::vector<std::int64_t>> slots_of_same(std::span<const double> reference,
                                                       std::span<const double> candidate) {
  if (!std::is_permutation(reference.begin(), reference.end(), candidate.begin(), candidate.end())) return std::nullopt;
  std::vector<std::int64_t> slots;
  for (const double expert : candidate) {
    slots.push_back(std::find(reference.begin(), reference.end(), expert) - reference.begin());
  }
  return slots;
}

Choice choice_of(std::span<const double> reference, std::span<const double> candidate) {
  return {ChosenExperts(reference.begin(), reference.end()), ChosenExperts(candidate.begin(), candidate.end())};
}

Reroute make_reroute(const Router& router, std::int64_t token, const Choice& choice) {
  const Choice exchanged = exchanged_in(choice);
  Reroute reroute;
  reroute.logits = router.scores->id;
  reroute.order = router.scores->order;
  reroute.token = token;
  reroute.tokens = count_rows(*router.scores);
  reroute.experts = router.scores->shape.back();
  reroute.reference_experts = {exchanged.reference.begin(), exchanged.reference.end()};
  reroute.candidate_experts = {exchanged.candidate.begin(), exchanged.candidate.end()};
  reroute.shift = required_shift(router, token, choice);
  return reroute;
}

}  // namespace

RecordedChoices::RecordedChoices(const Alignment& reference, const Alignment& candidate) : reference_(reference) {
  for (const auto& [id, tensor] : candidate.tensors) {
    if (!may_be_choice(tensor)) continue;
    const LogicalTensor* other = counterpart(reference, id);
    if (other == nullptr || !may_be_choice(*other) || other->shape != tensor.shape) continue;
    Recorded& recorded = calls_[{call_of(id), tensor.shape}];
    if (recorded.state == State::kProved) continue;  // of two alike tensors of one call
    recorded = {{other, &tensor}};
    compare(recorded);
  }
}

RecordedChoices::Call RecordedChoices::call_of(const TensorId& id) {
  return {id.iteration, id.microbatch, id.pass, is_of_output(id.kind), TensorName(id.name).without_member()};
}

void RecordedChoices::compare(Recorded& recorded) {
  const Values reference = values_of(*recorded.pair.reference), candidate = values_of(*recorded.pair.candidate);
  if (reference == candidate) return;
  prove(recorded, reference);
  if (recorded.state != State::kProved) return;
  const auto slots = static_cast<std::size_t>(slots_of(*recorded.pair.reference));
  for (std::size_t token = 0; token < reference.size() / slots; ++token) {
    const std::span of_reference(reference.data() + token * slots, slots);
    const std::span of_candidate(candidate.data() + token * slots, slots);
    if (std::equal(of_reference.begin(), of_reference.end(), of_candidate.begin())) continue;
    const auto number = static_cast<std::int64_t>(token);
    if (auto same = slots_of_same(of_reference, of_candidate)) {
      recorded.moved.emplace(number, std::move(*same));
    } else {
      found_.push_back(make_reroute(recorded.router, number, choice_of(of_reference, of_candidate)));
    }
  }
}

void RecordedChoices::prove(Recorded& recorded, const Values& experts) const {
  const LogicalTensor& choice = *recorded.pair.reference;
  const std::int64_t slots = slots_of(choice), tokens = tokens_of(choice);
  const double highest = *std::max_element(experts.begin(), experts.end());
  const std::string_view owner = owner_of(TensorName(choice.id.name).path);
  std::vector<const LogicalTensor*> near;
  for (const LogicalTensor* scores : floating_of(choice.id)) {
    const std::int64_t count = scores->shape.back();
    const std::string_view path = TensorName(scores->id.name).path;
    if (count_rows(*scores) != tokens || count <= slots || static_cast<double>(count) <= highest) continue;
    if (path == owner || is_inside(path, owner)) near.push_back(scores);
  }
  std::stable_sort(near.begin(), near.end(), [&](const LogicalTensor* a, const LogicalTensor* b) {
    return is_nearer(choice.id.name, a->id.name, b->id.name);
  });
  near.resize(std::min(near.size(), kMostTrials));
  recorded.state = State::kUnproved;
  for (const LogicalTensor* scores : near) {
    const Router router{scores, groups_beside(*scores)};
    if (!is_proved_by(router, experts, slots)) continue;
    recorded.state = State::kProved;
    recorded.router = router;
    return;
  }
}

// What the router's call has recorded of its groups; null where it has not.
const LogicalTensor* RecordedChoices::groups_beside(const LogicalTensor& scores) const {
  return find_tensor(reference_, scores.id, Kind::kOutput, TensorName(scores.id.name).with_member(":groups"));
}

const std::vector<const LogicalTensor*>& RecordedChoices::floating_of(const TensorId& choice) const {
  if (floating_.empty()) {
    for (const auto& [id, tensor] : reference_.tensors) {
      if (may_be_scores(tensor)) floating_[{id.iteration, id.microbatch}].push_back(&tensor);
    }
  }
  return floating_[{choice.iteration, choice.microbatch}];
}

void RecordedChoices::report_to(std::vector<Reroute>& reroutes) {
  const auto key = [](const Reroute& reroute) { return std::tie(reroute.logits, reroute.token); };
  reroutes.insert(reroutes.end(), found_.begin(), found_.end());
  std::stable_sort(reroutes.begin(), reroutes.end(),
                   [&](const Reroute& a, const Reroute& b) { return key(a) < key(b); });
  const auto end = std::unique(reroutes.begin(), reroutes.end(),
                               [&](const Reroute& a, const Reroute& b) { return key(a) == key(b); });
  reroutes.erase(end, reroutes.end());
  for (const Reroute& reroute : reroutes) {
    rerouted_[{{reroute.logits.iteration, reroute.logits.microbatch}, reroute.tokens}].insert(reroute.token);
  }
}

std::optional<std::pair<LogicalTensor, LogicalTensor>> RecordedChoices::in_common_slots(const TensorPair& pair) {
  const TensorId& id = pair.candidate->id;
  const auto found = calls_.find({call_of(id), pair.candidate->shape});
  if (found == calls_.end()) return std::nullopt;
  Recorded& recorded = found->second;
  SlotChange of_reference;
  const auto rerouted = rerouted_.find({{id.iteration, id.microbatch}, tokens_of(*pair.reference)});
  if (rerouted != rerouted_.end()) of_reference.dropped = rerouted->second;
  if (of_reference.dropped.empty() && recorded.moved.empty()) return std::nullopt;
  if (recorded.state == State::kNotTried) prove(recorded, values_of(*recorded.pair.reference));
  if (recorded.state != State::kProved) return std::nullopt;
  const SlotChange of_candidate{of_reference.dropped, recorded.moved};
  return std::pair(with_changed_slots(*pair.reference, of_reference),
                   with_changed_slots(*pair.candidate, of_candidate));
}

}  // namespace ttrace
