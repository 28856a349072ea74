// Judges tensors by their bits alone: those of a program that computes the same ones on any ranks, in any batch.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/finding.h"
#include "compare/bits.h"

namespace ttrace {

// Changes what `judge` made of the pair without tolerances: what has other bits fails, be the values equal, as zeros of
// two signs are; and says by how many units in the last place. A sum over ranks, which no rank has computed, is
// `untrusted`, `not-checkable`, unless its value is the reference's: its order is nobody's.
void hold_to_bits(const TensorPair& pair, const BitDifference& bits, Finding& finding);

// Sets such sums aside whose result is compared: activations and gradients, of which later tensors are computed, and
// what backward left of a parameter, where its reduced gradient or its step is there.
class SumsWithoutBits {
 public:
  // `pairs` are all that is compared; they must outlive this.
  explicit SumsWithoutBits(std::span<const TensorPair> pairs);
  // Returns true where the finding, which `hold_to_bits` has changed, is about such a sum.
  bool take(const BitDifference& bits, const Finding& finding);
  std::int64_t waived() const { return waived_; }
  void note(std::vector<std::string>& notes) const;

 private:
  std::set<TensorId> reduced_;  // parameters, as their main_grad, whose gradient is shown
  std::int64_t waived_ = 0;
  std::string first_;
};

}  // namespace ttrace
