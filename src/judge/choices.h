// Choices of experts that a program has recorded as numbers: an integer tensor [.., slots] that a module takes or
// returns, in whose last dimension each token has the numbers of the experts with the highest scores, in any order.
// No annotation says that a tensor is one; the reference's values prove it. Near a tie rounding decides which expert a
// token goes to, and in which slot it stands; what else has a number for each slot (the experts' weights) follows.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "judge/router.h"
#include "judge/routing.h"
#include "merge/values.h"

namespace ttrace {

class RecordedChoices {
 public:
  // Both must outlive it, unchanged.
  RecordedChoices(const Alignment& reference, const Alignment& candidate);

  // Adds the tokens that the two sides sent to different experts, where the reference's choice is proved to be one.
  // `reroutes` has what is known from elsewhere, sorted by logits and token, and so it is afterwards, each once.
  void report_to(std::vector<Reroute>& reroutes);

  // Returns both tensors without the tokens of their micro-batch that a router has re-routed, which have other values
  // for that reason alone; nothing where there is nothing to change.
  // - Activations with a row for each token, and their gradients, that are computed after the choice: as [tokens, ..].
  //   Their dimensions but the last are counted as the router's scores count their tokens.
  // - Choices and what has a number for each slot: as [tokens, slots], the candidate's with the reference's experts in
  //   each slot.
  // To be asked after `report_to`.
  std::optional<std::pair<LogicalTensor, LogicalTensor>> with_common_tokens(const TensorPair& pair) const;

 private:
  // The inputs of a module's call and their gradients, or its outputs and theirs, of one shape: iteration, micro-batch,
  // pass, whether they are outputs, the name without the member, the shape.
  using Call = std::tuple<std::int32_t, std::int32_t, Pass, bool, std::string, Shape>;
  using Batch = std::pair<std::int32_t, std::int32_t>;  // iteration and micro-batch
  // Holds, by token, the reference's slot of the expert in each of the candidate's, where these differ.
  using MovedSlots = std::map<std::int64_t, std::vector<std::int64_t>>;

  static Call call_of(const LogicalTensor& tensor);
  void compare(const TensorPair& pair);
  std::optional<Router> find_router(const LogicalTensor& choice, const Values& experts) const;
  const LogicalTensor* groups_beside(const LogicalTensor& scores) const;
  const std::vector<const LogicalTensor*>& scores_beside(const LogicalTensor& choice) const;
  std::shared_ptr<const std::vector<std::int64_t>> rerouted_before(const LogicalTensor& reference,
                                                                   bool is_choice) const;

  const Alignment& reference_;
  mutable std::map<Batch, std::vector<const LogicalTensor*>> scores_;  // what may be scores; empty until needed
  std::map<Call, std::shared_ptr<const MovedSlots>> choices_;          // those that are proved, and differ
  std::vector<Reroute> found_;
  // Holds what was re-routed in a micro-batch of so many tokens.
  struct Rerouted {
    // Says where in the execution each token was re-routed first, ascending.
    std::vector<std::pair<std::uint64_t, std::int64_t>> tokens;
    // Holds, by their number, the first of these, in ascending order of the tokens; made when asked for.
    mutable std::map<std::size_t, std::shared_ptr<const std::vector<std::int64_t>>> first;
  };
  std::map<std::pair<Batch, std::int64_t>, Rerouted> rerouted_;
};

}  // namespace ttrace
