// Gradients of one tensor, of all that it was handed to: ranks may hold parts of them, or copies, that come together
// outside of the modules.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/finding.h"
#include "judge/judge.h"

namespace ttrace {

class RightTotals {
 public:
  // Both must outlive it.
  RightTotals(const PairsById& pairs, const std::vector<Finding>& findings);

  // True where a value of the micro-batch with the bits of the gradient's own, in the reference, has a gradient of the same
  // bits there, and that is right: what comes back to it is all of this gradient.
  bool contains(const TensorId& gradient) const;

  // True where that value is an output: whatever ranks hold of the gradient, it came together where it is handed on.
  bool contains_output(const TensorId& gradient) const;

 private:
  using Bits = std::tuple<std::int32_t, std::int32_t, Shape, std::uint64_t>;  // iteration, micro-batch, shape, checksum
  using ValueAndGradient = std::pair<Bits, Bits>;

  std::optional<Bits> bits_of(const TensorId& id) const;
  std::optional<ValueAndGradient> total_of(const TensorId& gradient) const;

  const PairsById& pairs_;
  std::set<ValueAndGradient> all_, of_outputs_;
};

}  // namespace ttrace
