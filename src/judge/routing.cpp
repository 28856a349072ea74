#include "ttrace/judge/routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "align/describe.h"
#include "align/lookup.h"
#include "align/tokens.h"
#include "ttrace/annotation.h"
#include "ttrace/numeric/convert.h"
#include "ttrace/tensor_name.h"

namespace ttrace {
namespace {

struct Choice {
  std::set<std::int64_t> reference, candidate;  // experts that only this side chose
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

// Finds routers' logits. All tensors are searched once for each pattern, and the matches are kept.
class RouterOutputs {
 public:
  explicit RouterOutputs(const Alignment& reference) : reference_(reference) {}

  const LogicalTensor* find_nearest(const LogicalTensor& routed) {
    const auto [of_router, is_new] = outputs_.try_emplace(routed.router);
    if (is_new) collect(routed.router, of_router->second);
    const LogicalTensor* best = nullptr;
    for (const LogicalTensor* logits : of_router->second[{routed.id.iteration, routed.id.microbatch}]) {
      if (best == nullptr || is_nearer(routed.id.name, logits->id.name, best->id.name)) best = logits;
    }
    return best;
  }

 private:
  using Batches = std::map<std::pair<std::int32_t, std::int32_t>, std::vector<const LogicalTensor*>>;

  void collect(const std::string& router, Batches& outputs) const {
    for (const auto& [id, tensor] : reference_.tensors) {
      if (id.kind != Kind::kOutput || id.pass != Pass::kForward || !matches(router, id.name)) continue;
      outputs[{id.iteration, id.microbatch}].push_back(&tensor);
    }
  }

  const Alignment& reference_;
  std::map<std::string, Batches> outputs_;  // by the router's pattern
};

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

// Reads one row of a floating-point tensor, and adds up its terms.
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

// Computes `Reroute::shift`.
double required_shift(const LogicalTensor* logits, std::int64_t token, const Choice& choice) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  if (logits == nullptr || logits->sketched || !has_rows(*logits) || token >= count_rows(*logits) ||
      !is_floating(logits->dtype) || choice.reference.size() != choice.candidate.size()) {
    return kNever;
  }
  const std::vector<double> values = read_row(*logits, token);
  double square = 0, highest = -kNever, lowest = kNever;
  for (const double value : values) square += value * value;
  const auto value_at = [&](std::int64_t expert) {
    return expert >= 0 && expert < logits->shape.back() ? values[static_cast<std::size_t>(expert)]
                                                        : std::numeric_limits<double>::quiet_NaN();
  };
  for (const auto* experts : {&choice.reference, &choice.candidate}) {
    for (const std::int64_t expert : *experts) {
      if (std::isnan(value_at(expert))) return kNever;
      highest = std::max(highest, value_at(expert));
      lowest = std::min(lowest, value_at(expert));
    }
  }
  const double shift = (highest - lowest) / (2 * std::sqrt(square));
  return std::isfinite(shift) ? shift : kNever;
}

// Returns the rows of `tensor` that `other` does not hold; none where `other` is not a tensor of routed tokens.
std::vector<std::int64_t> rows_only_in(const LogicalTensor& tensor, const LogicalTensor* other) {
  if (other == nullptr || !other->rows) return {};
  std::vector<std::int64_t> rows;
  std::set_difference(tensor.rows->begin(), tensor.rows->end(), other->rows->begin(), other->rows->end(),
                      std::back_inserter(rows));
  return rows;
}

// True where the finding's tensor is computed after the router's choice, from the re-routed token among others.
bool may_change(const Reroute& reroute, const Finding& finding) {
  Finding choice;
  choice.id = reroute.logits;
  choice.order = reroute.order;
  const bool same_batch = finding.id.microbatch == kNoMicrobatch || finding.id.microbatch == choice.id.microbatch;
  return choice.id.iteration == finding.id.iteration && same_batch && executes_before(choice, finding);
}

bool is_near_tie(const Reroute& reroute, const ToleranceFile* tolerance) {
  const double allowed = tolerance == nullptr ? 0 : allowed_for(*tolerance, reroute.logits).value_or(0);
  return reroute.shift <= allowed && allowed < 1;
}

std::string list_tokens(const std::vector<Reroute>& reroutes) {
  std::vector<std::string> tokens;
  for (const Reroute& reroute : reroutes) {
    tokens.push_back(fmt::format("token {} of {}", reroute.token, to_string(reroute.logits)));
  }
  return comma_list(tokens);
}

std::string list_experts(const std::vector<std::int64_t>& experts) {
  return fmt::format("{}", fmt::join(experts, ", "));
}

}  // namespace

std::int64_t token_of(const LogicalTensor& tensor, std::int64_t row) {
  return tensor.routed_experts > 0 ? row / tensor.routed_experts : row;
}

std::vector<Reroute> find_reroutes(const Alignment& reference, const Alignment& candidate) {
  std::map<const LogicalTensor*, std::map<std::int64_t, Choice>> choices;  // by logits, then by token
  std::map<const LogicalTensor*, const LogicalTensor*> routed;             // by logits, a tensor that they routed
  RouterOutputs router_outputs(reference);
  for (const auto& [id, tensor] : reference.tensors) {
    if (!tensor.rows || id.kind != Kind::kInput || id.pass != Pass::kForward) continue;
    const LogicalTensor* other = find_tensor(candidate, id);
    if (other == nullptr || !other->rows || *other->rows == *tensor.rows) continue;
    const LogicalTensor* logits = router_outputs.find_nearest(tensor);
    routed.emplace(logits, &tensor);
    std::map<std::int64_t, Choice>& of_tokens = choices[logits];
    for (const std::int64_t row : rows_only_in(tensor, other)) {
      of_tokens[token_of(tensor, row)].reference.insert(expert_of(tensor, row));
    }
    for (const std::int64_t row : rows_only_in(*other, &tensor)) {
      of_tokens[token_of(tensor, row)].candidate.insert(expert_of(tensor, row));
    }
  }
  std::vector<Reroute> reroutes;
  for (const auto& [logits, tokens] : choices) {
    for (const auto& [token, choice] : tokens) {
      Reroute& reroute = reroutes.emplace_back();
      const LogicalTensor& example = *routed.at(logits);
      reroute.logits = logits != nullptr ? logits->id : example.id;
      reroute.order = logits != nullptr ? logits->order : example.order;
      reroute.token = token;
      if (logits != nullptr && has_rows(*logits)) {
        reroute.tokens = count_rows(*logits);
        reroute.experts = logits->shape.back();
      }
      reroute.reference_experts = {choice.reference.begin(), choice.reference.end()};
      reroute.candidate_experts = {choice.candidate.begin(), choice.candidate.end()};
      reroute.shift = required_shift(logits, token, choice);
    }
  }
  std::sort(reroutes.begin(), reroutes.end(), [](const Reroute& a, const Reroute& b) {
    return std::tie(a.logits, a.token) < std::tie(b.logits, b.token);
  });
  return reroutes;
}

ReroutesByCause explain_reroutes(std::span<const Reroute> reroutes, const ToleranceFile* tolerance) {
  std::vector<const Reroute*> executed;
  for (const Reroute& reroute : reroutes) executed.push_back(&reroute);
  std::stable_sort(executed.begin(), executed.end(), [](const Reroute* a, const Reroute* b) {
    return std::tie(a->logits.iteration, a->order) < std::tie(b->logits.iteration, b->order);
  });
  ReroutesByCause causes;
  std::set<std::tuple<std::int32_t, std::int32_t, std::int64_t>> moved;  // iteration, micro-batch, token
  for (const Reroute* reroute : executed) {
    const std::tuple token(reroute->logits.iteration, reroute->logits.microbatch, reroute->token);
    if (moved.contains(token)) {
      causes.following.push_back(*reroute);
    } else if (is_near_tie(*reroute, tolerance)) {
      causes.near_ties.push_back(*reroute);
      moved.insert(token);
    } else {
      causes.others.push_back(*reroute);
    }
  }
  return causes;
}

std::vector<Finding> judge_reroutes(const ReroutesByCause& reroutes, std::vector<std::string>& notes) {
  if (!reroutes.near_ties.empty()) {
    notes.push_back(fmt::format("re-routed by a near tie, compared no further at the experts: {} tokens: {}",
                                reroutes.near_ties.size(), list_tokens(reroutes.near_ties)));
  }
  if (!reroutes.following.empty()) {
    notes.push_back(fmt::format("re-routed by a later router, after a near tie had changed them: {} tokens: {}",
                                reroutes.following.size(), list_tokens(reroutes.following)));
  }
  std::map<TensorId, std::vector<const Reroute*>> wrong;
  for (const Reroute& reroute : reroutes.others) wrong[reroute.logits].push_back(&reroute);
  std::vector<Finding> findings;
  for (const auto& [logits, tokens] : wrong) {
    const Reroute& first = *tokens.front();
    Finding& finding = findings.emplace_back();
    finding.id = logits;
    finding.verdict = Verdict::kFail;
    finding.reason = Reason::kRoutingDiffers;
    finding.order = first.order;
    finding.message = fmt::format(
        "{}: {} tokens went to other experts, and the reference's choice was no near tie: token {} to {} instead of "
        "{}, for which the logits would have to move by {:.3g} of their norm",
        to_string(logits), tokens.size(), first.token,
        first.candidate_experts.empty() ? "none" : list_experts(first.candidate_experts),
        first.reference_experts.empty() ? "none" : list_experts(first.reference_experts), first.shift);
  }
  return findings;
}

std::vector<bool> find_changed_pairs(std::span<const TensorPair> pairs, std::span<const Reroute> reroutes) {
  std::map<TensorId, const Reroute*> choices;  // one reroute of each logits: the answer depends on nothing else
  for (const Reroute& reroute : reroutes) choices.emplace(reroute.logits, &reroute);
  std::vector<bool> changed;
  for (const TensorPair& pair : pairs) {
    Finding finding;
    finding.id = pair.reference->id;
    finding.order = pair.reference->order;
    // The step that follows a choice makes other parameters, and all later iterations begin with those.
    changed.push_back(std::any_of(choices.begin(), choices.end(), [&](const auto& choice) {
      return choice.first.iteration < finding.id.iteration || may_change(*choice.second, finding);
    }));
  }
  return changed;
}

void downgrade_if_rerouted(Finding& finding, std::span<const Reroute> ties) {
  if (finding.reason != Reason::kExceedsTolerance || !finding.difference) return;
  double share = 0;
  std::set<std::pair<std::int32_t, std::int64_t>> tokens;
  for (const Reroute& tie : ties) {
    if (!may_change(tie, finding)) continue;
    if (!tokens.emplace(tie.logits.microbatch, tie.token).second) continue;
    share += static_cast<double>(tie.experts) / static_cast<double>(tie.tokens);
  }
  const double explained = std::sqrt(2 * share);
  if (finding.difference->rel_err() > explained) return;
  finding.verdict = Verdict::kUntrusted;
  finding.reason = Reason::kRerouted;
  finding.message += fmt::format("; {} tokens that a near tie sent to other experts may explain up to {:.3g}",
                                 tokens.size(), explained);
}

LogicalTensor keep_rows(const LogicalTensor& tensor, const std::vector<std::int64_t>& rows) {
  LogicalTensor kept = tensor;
  kept.rows.reset();
  kept.shape[0] = static_cast<std::int64_t>(rows.size());
  kept.pieces = [make = tensor.pieces, rows] {
    std::vector<Piece> pieces;
    for (Piece& piece : make()) {
      const auto found = std::lower_bound(rows.begin(), rows.end(), piece.logical.start[0]);
      if (found == rows.end() || *found != piece.logical.start[0]) continue;
      piece.logical.start[0] = found - rows.begin();
      pieces.push_back(std::move(piece));
    }
    return pieces;
  };
  return kept;
}

}  // namespace ttrace
