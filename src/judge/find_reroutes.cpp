#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "align/lookup.h"
#include "align/tokens.h"
#include "judge/group_choice.h"
#include "ttrace/annotation.h"
#include "ttrace/judge/routing.h"
#include "ttrace/numeric/convert.h"
#include "ttrace/tensor_name.h"

namespace ttrace {
namespace {

using Experts = std::set<std::int64_t>;

// The experts of one token.
struct Choice {
  Experts reference, candidate;
};

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

// What a call of the reference's router has recorded of its choice.
struct Router {
  const LogicalTensor* scores = nullptr;  // what it chooses by; null where that was not recorded
  const LogicalTensor* groups = nullptr;  // null where it chooses among all experts
};

// Finds routers' outputs. All tensors are searched once for each pattern, and the matches are kept.
class RouterOutputs {
 public:
  explicit RouterOutputs(const Alignment& reference) : reference_(reference) {}

  Router find_nearest(const LogicalTensor& routed) {
    const LogicalTensor* logits = find_nearest_output(routed, routed.router.logits);
    if (logits == nullptr) return {};
    const auto find_beside = [&](const std::string& pattern) -> const LogicalTensor* {
      const LogicalTensor* found = pattern.empty() ? nullptr : find_nearest_output(routed, pattern);
      return found != nullptr && are_of_one_call(*found, *logits) ? found : nullptr;
    };
    const LogicalTensor* scores = find_beside(routed.router.scores);
    return {scores != nullptr ? scores : logits, find_beside(routed.router.groups)};
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

constexpr double kNever = std::numeric_limits<double>::infinity();

// A router's scores are a row of them for each token: its dimensions but the last, counted row-major.
bool has_rows(const LogicalTensor& tensor) { return tensor.shape.size() >= 2 && tensor.shape.back() > 0; }

std::int64_t count_rows(const LogicalTensor& tensor) { return element_count(tensor.shape) / tensor.shape.back(); }

// Where in the piece's entry the first element is that it has of this row; nothing where it has none.
std::optional<std::int64_t> find_row(const Piece& piece, const Shape& shape, std::int64_t row) {
  std::int64_t at = piece.offset;
  for (std::size_t d = shape.size() - 1; d-- > 0; row /= shape[d]) {
    const std::int64_t inside = row % shape[d] - piece.logical.start[d];
    if (inside < 0 || inside >= piece.logical.size[d]) return std::nullopt;
    at += inside * piece.strides[d];
  }
  return at;
}

// Reads one row of a tensor, and adds up its terms.
std::vector<double> read_row(const LogicalTensor& tensor, std::int64_t row) {
  std::vector<double> values(static_cast<std::size_t>(tensor.shape.back()), 0);
  for (const Piece& piece : tensor.pieces()) {
    const auto first = piece.replica == 0 ? find_row(piece, tensor.shape, row) : std::nullopt;
    if (!first) continue;
    for (std::int64_t i = 0; i < piece.logical.size.back(); ++i) {
      const std::int64_t at = *first + i * piece.strides.back();
      double value = 0;
      widen(piece.elements() + at * size_of(piece.entry->dtype), piece.entry->dtype, 1, &value);
      values[static_cast<std::size_t>(piece.logical.start.back() + i)] += value;
    }
  }
  return values;
}

// Reads what the router has recorded of its groups; nothing where that is no way to choose among so many experts.
std::optional<ExpertGroups> read_groups(const LogicalTensor& tensor, std::int64_t experts) {
  if (tensor.shape != Shape{3} || tensor.dtype != Dtype::kInt64) return std::nullopt;
  const std::vector<double> said = read_row(tensor, 0);
  const auto is_among = [](double number, std::int64_t most) {
    return number >= 1 && number <= static_cast<double>(most);
  };
  if (!is_among(said[0], experts)) return std::nullopt;
  ExpertGroups groups;
  groups.count = static_cast<std::int64_t>(said[0]);
  if (experts % groups.count != 0 || !is_among(said[1], groups.count) || !is_among(said[2], experts / groups.count)) {
    return std::nullopt;
  }
  groups.chosen = static_cast<std::int64_t>(said[1]);
  groups.counted = static_cast<std::int64_t>(said[2]);
  return groups;
}

Experts without(const Experts& experts, const Experts& others) {
  Experts rest;
  std::set_difference(experts.begin(), experts.end(), others.begin(), others.end(), std::inserter(rest, rest.end()));
  return rest;
}

// The experts that only one side chose.
Choice exchanged_in(const Choice& choice) {
  return {without(choice.reference, choice.candidate), without(choice.candidate, choice.reference)};
}

// How far each score must move before the exchanged experts are alike: half of what separates the highest and the
// lowest of them, whichever side chose which. A candidate that chose higher ones did not choose by the same rule.
double move_to_exchange(std::span<const double> scores, const Choice& exchanged) {
  double highest = -kNever, lowest = kNever;
  for (const Experts* experts : {&exchanged.reference, &exchanged.candidate}) {
    for (const std::int64_t expert : *experts) {
      if (expert < 0 || expert >= static_cast<std::int64_t>(scores.size())) return kNever;
      highest = std::max(highest, scores[static_cast<std::size_t>(expert)]);
      lowest = std::min(lowest, scores[static_cast<std::size_t>(expert)]);
    }
  }
  return (highest - lowest) / 2;
}

// Computes `Reroute::shift`.
double required_shift(const Router& router, std::int64_t token, const Choice& choice) {
  const LogicalTensor* tensor = router.scores;
  if (tensor == nullptr || tensor->sketched || !has_rows(*tensor) || token >= count_rows(*tensor) ||
      !is_floating(tensor->dtype) || choice.reference.size() != choice.candidate.size()) {
    return kNever;
  }
  const std::vector<double> scores = read_row(*tensor, token);
  double square = 0;
  for (const double score : scores) square += score * score;
  if (!std::isfinite(square)) return kNever;
  const auto groups = router.groups == nullptr ? std::nullopt : read_groups(*router.groups, tensor->shape.back());
  const double move = groups ? std::max(move_to_choose(scores, *groups, choice.reference),
                                        move_to_choose(scores, *groups, choice.candidate))
                             : move_to_exchange(scores, exchanged_in(choice));
  const double shift = move / std::sqrt(square);
  return std::isfinite(shift) ? shift : kNever;
}

// The tensors of tokens that one call of a router has sent to experts.
struct RoutedTokens {
  Router router;
  std::vector<TensorPair> pairs;
};

// Returns, by token, the choices that the two sides made differently.
std::map<std::int64_t, Choice> choices_that_differ(const RoutedTokens& routed) {
  std::map<std::int64_t, Choice> choices;
  const auto add_rows = [&](const LogicalTensor& tensor, const LogicalTensor& other, Experts Choice::* side) {
    std::vector<std::int64_t> rows;
    std::set_difference(tensor.rows->begin(), tensor.rows->end(), other.rows->begin(), other.rows->end(),
                        std::back_inserter(rows));
    for (const std::int64_t row : rows) (choices[token_of(tensor, row)].*side).insert(expert_of(tensor, row));
  };
  for (const auto& [reference, candidate] : routed.pairs) {
    add_rows(*reference, *candidate, &Choice::reference);
    add_rows(*candidate, *reference, &Choice::candidate);
  }
  // What both chose belongs to a choice among groups.
  const auto add_experts = [&](const LogicalTensor& tensor, Experts Choice::* side) {
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
