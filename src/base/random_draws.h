// Says where a program drew random numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/trace.h"

namespace ttrace {

// One rank's statement of what its module calls returned after they had drawn, in code of their own, or were given after
// their caller had. Its provenance holds it as
//
//   "draws": {"modules": ["blocks.0.drop", "blocks.0.up#1"],
//             "calls": [[0, "output", 0, 0, 0, "forward", 60493], [1, "input", 0, 0, 0, "forward", 51966]]}
//
// where a call is the place of a module and its call in `modules`, the kind, the iteration, the micro-batch, the chunk,
// the pass and a digest of the generators' states before the first of the draws. Of others nothing was drawn. With
// `"cut": true` only the first of each module and kind is listed. All of it is absent where the recorder could not look,
// or the document would be too long.
class RandomDraws {
 public:
  // Of each tensor, under the name of its module's call, the state before.
  RandomDraws(std::map<TensorId, std::uint64_t> states, bool is_cut);

  // The same where the numbers of micro-batches are others: what is known of modules, and not of their calls.
  std::shared_ptr<const RandomDraws> of_any_call() const;

  // The same under the names that `new_name` makes of a chunk and a name.
  std::shared_ptr<const RandomDraws> with_names(
      const std::function<std::string(std::int32_t, const std::string&)>& new_name) const;

  // The same where the model chunks have other numbers.
  std::shared_ptr<const RandomDraws> with_chunks(const std::function<std::int32_t(std::int32_t)>& new_number) const;

  // Of a tensor as the rank recorded it: true where it came after a draw.
  bool holds(const TensorId& recorded) const;
  // The state before that; nothing where it is not known.
  std::optional<std::uint64_t> state_before(const TensorId& recorded) const;

 private:
  std::map<TensorId, std::uint64_t> states_;
  std::set<std::pair<Kind, std::string>> modules_;  // any call of which may have drawn
};

}  // namespace ttrace
