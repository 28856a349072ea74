// Choices of experts that a program has recorded as numbers: an integer tensor [.., slots] that a module takes or
// returns, in whose last dimension each token has the numbers of the experts with the highest scores, in any order.
// No annotation says that a tensor is one; the reference's values prove it. Near a tie rounding decides which expert a
// token goes to, and in which slot it stands; what else has a number for each slot (the experts' weights) follows.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "judge/router.h"
#include "merge/values.h"
#include "ttrace/judge/routing.h"

namespace ttrace {

class RecordedChoices {
 public:
  // Both must outlive it, unchanged.
  RecordedChoices(const Alignment& reference, const Alignment& candidate);

  // Adds the tokens that the two sides sent to different experts, where the reference's choice is proved to be one.
  // `reroutes` has what is known from elsewhere, sorted by logits and token, and so it is afterwards, each once.
  void report_to(std::vector<Reroute>& reroutes);

  // Where the call that the pair is of has recorded a choice of the pair's shape: both tensors without the tokens of
  // their micro-batch that any router re-routed, as [tokens, slots], the candidate's with the reference's experts in
  // each slot. Nothing where that changes neither. To be asked after `report_to`.
  std::optional<std::pair<LogicalTensor, LogicalTensor>> in_common_slots(const TensorPair& pair);

 private:
  // The inputs of a module's call and their gradients, or its outputs and theirs: iteration, micro-batch, pass, whether
  // they are outputs, and the name without the member.
  using Call = std::tuple<std::int32_t, std::int32_t, Pass, bool, std::string>;
  using Batch = std::pair<std::int32_t, std::int32_t>;  // iteration and micro-batch
  enum class State : std::uint8_t { kNotTried, kProved, kUnproved };
  struct Recorded {
    TensorPair pair;
    State state = State::kNotTried;
    Router router = {};  // where it is proved
    // By token, the reference's slot of the expert in each of the candidate's, where these differ.
    std::map<std::int64_t, std::vector<std::int64_t>> moved = {};
  };

  static Call call_of(const TensorId& id);
  void compare(Recorded& recorded);
  void prove(Recorded& recorded, const Values& experts) const;
  const LogicalTensor* groups_beside(const LogicalTensor& scores) const;
  const std::vector<const LogicalTensor*>& floating_of(const TensorId& choice) const;

  const Alignment& reference_;
  mutable std::map<Batch, std::vector<const LogicalTensor*>> floating_;  // what may be scores; empty until needed
  std::map<std::pair<Call, Shape>, Recorded> calls_;
  std::vector<Reroute> found_;
  std::map<std::pair<Batch, std::int64_t>, std::set<std::int64_t>> rerouted_;  // by the number of tokens as well
};

}  // namespace ttrace
