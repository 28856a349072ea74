#include "judge/choices.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "align/token_rows.h"
#include "base/lookup.h"
#include "base/tensor_name.h"
#include "identify/tokens.h"
#include "judge/match.h"
#include "merge/region.h"
#include "merge/values.h"
#include "numeric/dtype.h"

namespace ttrace {
namespace {

// A choice is proved where the scores of unrelated numbers would give the same one with a chance of at most 2^-32.
constexpr double kProofBits = 32;
// So many of the tensors that are nearest by name are tried as a router's scores.
constexpr std::size_t kMostTrials = 16;
constexpr std::int64_t kMostExperts = 1 << 16, kMostSlots = 1 << 10;
constexpr std::int64_t kFirstTokens = 16;  // which tell most tensors that are no scores

bool is_activation(Kind kind) { return kind == Kind::kInput || kind == Kind::kOutput; }

// A row for each token of a micro-batch, or for each of something else.
bool may_have_token_rows(const LogicalTensor& tensor) {
  if (tensor.kept != nullptr) return false;
  const bool is_of_call =
      is_activation(tensor.id.kind) || tensor.id.kind == Kind::kGradOutput || tensor.id.kind == Kind::kGradInput;
  return is_of_call && has_rows(tensor) && element_count(tensor.shape) > 0 && !tensor.rows && !tensor.sketched;
}

bool may_be_choice(const LogicalTensor& tensor) {
  const bool is_number = tensor.dtype == Dtype::kInt64 || tensor.dtype == Dtype::kInt32;
  return is_activation(tensor.id.kind) && is_number && may_have_token_rows(tensor) && tensor.shape.back() <= kMostSlots;
}

bool may_be_scores(const LogicalTensor& tensor) {
  return is_activation(tensor.id.kind) && tensor.id.pass == Pass::kForward && is_floating(tensor.dtype) &&
         may_have_token_rows(tensor) && tensor.shape.back() <= kMostExperts;
}

// log2 of the number of ways to choose.
double bits_of_choice(std::int64_t experts, std::int64_t slots) {
  const auto log_factorial = [](std::int64_t n) { return std::lgamma(static_cast<double>(n) + 1); };
  return (log_factorial(experts) - log_factorial(slots) - log_factorial(experts - slots)) / std::log(2.0);
}

// Tells whether the router chooses these experts, [tokens, slots], for its first tokens, and how many bits that proves.
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

// Returns, for each of the candidate's slots, the reference's slot that holds the same expert; nothing where they hold
// others.
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
    if (other != nullptr && may_be_choice(*other) && other->shape == tensor.shape) compare({other, &tensor});
  }
}

RecordedChoices::Call RecordedChoices::call_of(const LogicalTensor& tensor) {
  const TensorId& id = tensor.id;
  const bool is_of_output = id.kind == Kind::kOutput || id.kind == Kind::kGradOutput;
  return {id.iteration, id.microbatch, id.pass, is_of_output, TensorName(id.name).without_member(), tensor.shape};
}

void RecordedChoices::compare(const TensorPair& pair) {
  const Values reference = values_of(*pair.reference), candidate = values_of(*pair.candidate);
  if (reference == candidate) return;
  const std::optional<Router> router = find_router(*pair.reference, reference);
  if (!router) return;
  MovedSlots moved;
  const auto slots = static_cast<std::size_t>(pair.reference->shape.back());
  for (std::size_t token = 0; token < reference.size() / slots; ++token) {
    const std::span of_reference(reference.data() + token * slots, slots);
    const std::span of_candidate(candidate.data() + token * slots, slots);
    if (std::equal(of_reference.begin(), of_reference.end(), of_candidate.begin())) continue;
    const auto number = static_cast<std::int64_t>(token);
    if (auto same = slots_of_same(of_reference, of_candidate)) {
      moved.emplace(number, std::move(*same));
    } else {
      found_.push_back(make_reroute(*router, number, choice_of(of_reference, of_candidate)));
    }
  }
  choices_[call_of(*pair.candidate)] = std::make_shared<const MovedSlots>(std::move(moved));
}

std::optional<Router> RecordedChoices::find_router(const LogicalTensor& choice, const Values& experts) const {
  const std::int64_t slots = choice.shape.back();
  const double highest = *std::max_element(experts.begin(), experts.end());
  const std::string_view owner = owner_of(TensorName(choice.id.name).path);
  std::vector<const LogicalTensor*> near;
  for (const LogicalTensor* scores : scores_beside(choice)) {
    const std::int64_t count = scores->shape.back();
    const std::string_view path = TensorName(scores->id.name).path;
    if (count_rows(*scores) != count_rows(choice) || count <= slots || static_cast<double>(count) <= highest) continue;
    if (path == owner || is_inside(path, owner)) near.push_back(scores);
  }
  std::stable_sort(near.begin(), near.end(), [&](const LogicalTensor* a, const LogicalTensor* b) {
    return is_nearer(choice.id.name, a->id.name, b->id.name);
  });
  near.resize(std::min(near.size(), kMostTrials));
  for (const LogicalTensor* scores : near) {
    const Router router{scores, groups_beside(*scores)};
    if (is_proved_by(router, experts, slots)) return router;
  }
  return std::nullopt;
}

// Returns what the router's call has recorded of its groups; null where it has not.
const LogicalTensor* RecordedChoices::groups_beside(const LogicalTensor& scores) const {
  return find_tensor(reference_, scores.id, Kind::kOutput, TensorName(scores.id.name).with_member(":groups"));
}

const std::vector<const LogicalTensor*>& RecordedChoices::scores_beside(const LogicalTensor& choice) const {
  if (scores_.empty()) {
    for (const auto& [id, tensor] : reference_.tensors) {
      if (may_be_scores(tensor)) scores_[{id.iteration, id.microbatch}].push_back(&tensor);
    }
  }
  return scores_[{choice.id.iteration, choice.id.microbatch}];
}

void RecordedChoices::report_to(std::vector<Reroute>& reroutes) {
  const auto key = [](const Reroute& reroute) { return std::tie(reroute.logits, reroute.token); };
  reroutes.insert(reroutes.end(), found_.begin(), found_.end());
  std::stable_sort(reroutes.begin(), reroutes.end(),
                   [&](const Reroute& a, const Reroute& b) { return key(a) < key(b); });
  const auto end = std::unique(reroutes.begin(), reroutes.end(),
                               [&](const Reroute& a, const Reroute& b) { return key(a) == key(b); });
  reroutes.erase(end, reroutes.end());
  std::map<std::pair<Batch, std::int64_t>, std::map<std::int64_t, std::uint64_t>> first;
  for (const Reroute& reroute : reroutes) {
    auto& tokens = first[{{reroute.logits.iteration, reroute.logits.microbatch}, reroute.tokens}];
    std::uint64_t& order = tokens.try_emplace(reroute.token, reroute.order).first->second;
    order = std::min(order, reroute.order);
  }
  for (const auto& [batch, tokens] : first) {
    auto& in_order = rerouted_[batch].tokens;
    for (const auto& [token, order] : tokens) in_order.emplace_back(order, token);
    std::sort(in_order.begin(), in_order.end());
  }
}

// The tokens that were re-routed before the tensor was computed: all of them for what a backward computes, and for a
// choice, which a router may return before its scores. Null where there is none.
std::shared_ptr<const std::vector<std::int64_t>> RecordedChoices::rerouted_before(const LogicalTensor& reference,
                                                                                  bool is_choice) const {
  const TensorId& id = reference.id;
  const auto found = rerouted_.find({{id.iteration, id.microbatch}, count_rows(reference)});
  if (found == rerouted_.end()) return nullptr;
  const auto& tokens = found->second.tokens;
  const bool whenever = is_choice || !is_activation(id.kind) || id.pass == Pass::kRecompute;
  const auto end = whenever
                       ? tokens.end()
                       : std::lower_bound(tokens.begin(), tokens.end(), std::pair(reference.order, std::int64_t{0}));
  if (end == tokens.begin()) return nullptr;
  auto& first = found->second.first[static_cast<std::size_t>(end - tokens.begin())];
  if (first == nullptr) {
    std::vector<std::int64_t> ascending;
    for (auto token = tokens.begin(); token != end; ++token) ascending.push_back(token->second);
    std::sort(ascending.begin(), ascending.end());
    first = std::make_shared<const std::vector<std::int64_t>>(std::move(ascending));
  }
  return first;
}

std::optional<std::pair<LogicalTensor, LogicalTensor>> RecordedChoices::with_common_tokens(
    const TensorPair& pair) const {
  const LogicalTensor& reference = *pair.reference;
  if (!may_have_token_rows(reference) || !may_have_token_rows(*pair.candidate)) return std::nullopt;
  const auto choice = choices_.find(call_of(*pair.candidate));
  const bool is_choice = choice != choices_.end();
  if (!is_choice && !is_floating(reference.dtype)) return std::nullopt;
  const RowChange of_reference{rerouted_before(reference, is_choice)};
  const RowChange of_candidate{of_reference.dropped, is_choice ? choice->second : nullptr};
  const bool is_moved = is_choice && !choice->second->empty();
  if (of_reference.dropped == nullptr && !is_moved) return std::nullopt;
  return std::pair(with_changed_rows(reference, of_reference), with_changed_rows(*pair.candidate, of_candidate));
}

}  // namespace ttrace
