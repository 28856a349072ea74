#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/annotation.h"
#include "base/lookup.h"
#include "base/tensor_name.h"
#include "identify/tokens.h"
#include "judge/router.h"
#include "judge/routing.h"

namespace ttrace {
namespace {

// Returns the expert's number, the last one in a tensor's name: 3 in `..local_experts.3.linear_fc1`; -1 for none.
std::int64_t last_number_in(const std::string& name) {
  std::int64_t expert = -1;
  for (auto number = number_in(name); number; number = number_in(name, number->end)) expert = number->value;
  return expert;
}

// The expert that a row of a tensor of routed tokens was sent to.
std::int64_t expert_of(const LogicalTensor& tensor, std::int64_t row) {
  return tensor.routed_experts > 0 ? row % tensor.routed_experts : last_number_in(tensor.id.name);
}

// Finds routers' outputs. All tensors are searched once for each pattern, and the matches are kept.
class RouterOutputs {
 public:
  explicit RouterOutputs(const Alignment& reference) : reference_(reference) {}

  Router find_nearest(const LogicalTensor& routed) {
    const LogicalTensor* logits = find_nearest_output(routed, routed.router->logits);
    if (logits == nullptr) return {};
    const auto find_beside = [&](const std::string& pattern) -> const LogicalTensor* {
      const LogicalTensor* found = pattern.empty() ? nullptr : find_nearest_output(routed, pattern);
      return found != nullptr && are_of_one_call(*found, *logits) ? found : nullptr;
    };
    const LogicalTensor* scores = find_beside(routed.router->scores);
    return {scores != nullptr ? scores : logits, find_beside(routed.router->groups)};
  }

 private:
  using Batches = std::map<std::pair<std::int32_t, std::int32_t>, std::vector<const LogicalTensor*>>;

  static bool are_of_one_call(const LogicalTensor& one, const LogicalTensor& other) {
    return TensorName(one.id.name).without_member() == TensorName(other.id.name).without_member();
  }

  const LogicalTensor* find_nearest_output(const LogicalTensor& routed, const std::string& pattern) {
    const auto [of_pattern, is_new] = outputs_.try_emplace(pattern);
    if (is_new) collect(pattern, of_pattern->second);
    const LogicalTensor* best = nullptr;
    for (const LogicalTensor* output : of_pattern->second[{routed.id.iteration, routed.id.microbatch}]) {
      if (best == nullptr || is_nearer(routed.id.name, output->id.name, best->id.name)) best = output;
    }
    return best;
  }

  void collect(const std::string& pattern, Batches& outputs) const {
    for (const auto& [id, tensor] : reference_.tensors) {
      if (id.kind != Kind::kOutput || id.pass != Pass::kForward || !matches(pattern, id.name)) continue;
      outputs[{id.iteration, id.microbatch}].push_back(&tensor);
    }
  }

  const Alignment& reference_;
  std::map<std::string, Batches> outputs_;  // by pattern
};

// The tensors of tokens that one call of a router has sent to experts.
struct RoutedTokens {
  Router router;
  std::vector<TensorPair> pairs;
};

// Returns, by token, the choices that the two sides made differently.
std::map<std::int64_t, Choice> choices_that_differ(const RoutedTokens& routed) {
  std::map<std::int64_t, Choice> choices;
  const auto add_rows = [&](const LogicalTensor& tensor, const LogicalTensor& other, ChosenExperts Choice::* side) {
    std::vector<std::int64_t> rows;
    std::set_difference(tensor.rows->begin(), tensor.rows->end(), other.rows->begin(), other.rows->end(),
                        std::back_inserter(rows));
    for (const std::int64_t row : rows) (choices[token_of(tensor, row)].*side).insert(expert_of(tensor, row));
  };
  for (const auto& [reference, candidate] : routed.pairs) {
    add_rows(*reference, *candidate, &Choice::reference);
    add_rows(*candidate, *reference, &Choice::candidate);
  }
  // Experts that both chose belong to a choice among groups.
  const auto add_experts = [&](const LogicalTensor& tensor, ChosenExperts Choice::* side) {
    for (const std::int64_t row : *tensor.rows) {
      const auto choice = choices.find(token_of(tensor, row));
      if (choice != choices.end()) (choice->second.*side).insert(expert_of(tensor, row));
    }
  };
  if (choices.empty() || routed.router.groups == nullptr) return choices;
  for (const auto& [reference, candidate] : routed.pairs) {
    add_experts(*reference, &Choice::reference);
    add_experts(*candidate, &Choice::candidate);
  }
  return choices;
}

}  // namespace

std::vector<Reroute> find_reroutes(const Alignment& reference, const Alignment& candidate) {
  std::map<const LogicalTensor*, RoutedTokens> by_scores;
  RouterOutputs router_outputs(reference);
  const auto add_pairs = [&](bool that_differ) {
    for (const auto& [id, tensor] : reference.tensors) {
      if (!tensor.rows || id.kind != Kind::kInput || id.pass != Pass::kForward) continue;
      const LogicalTensor* other = find_tensor(candidate, id);
      if (other == nullptr || !other->rows || (*other->rows != *tensor.rows) != that_differ) continue;
      const Router router = router_outputs.find_nearest(tensor);
      if (!that_differ && !by_scores.contains(router.scores)) continue;
      RoutedTokens& routed = by_scores[router.scores];
      routed.router = router;
      routed.pairs.push_back({&tensor, other});
    }
  };
  add_pairs(true);
  const bool needs_whole_choices = std::any_of(by_scores.begin(), by_scores.end(),
                                               [](const auto& item) { return item.second.router.groups != nullptr; });
  if (needs_whole_choices) add_pairs(false);
  std::vector<Reroute> reroutes;
  for (const auto& [scores, routed] : by_scores) {
    for (const auto& [token, choice] : choices_that_differ(routed)) {
      const Choice exchanged = exchanged_in(choice);
      Reroute& reroute = reroutes.emplace_back();
      const LogicalTensor& example = scores != nullptr ? *scores : *routed.pairs[0].reference;
      reroute.logits = example.id;
      reroute.order = example.order;
      reroute.token = token;
      if (scores != nullptr && has_rows(*scores)) {
        reroute.tokens = count_rows(*scores);
        reroute.experts = scores->shape.back();
      }
      reroute.reference_experts = {exchanged.reference.begin(), exchanged.reference.end()};
      reroute.candidate_experts = {exchanged.candidate.begin(), exchanged.candidate.end()};
      reroute.shift = required_shift(routed.router, token, choice);
    }
  }
  std::sort(reroutes.begin(), reroutes.end(), [](const Reroute& a, const Reroute& b) {
    return std::tie(a.logits, a.token) < std::tie(b.logits, b.token);
  });
  return reroutes;
}

}  // namespace ttrace
