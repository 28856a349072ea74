// Tells the cycles of an iteration apart: forward, backward and perhaps a step, and then forward again.
//
// Micro-batches that run one after the other are cycles, and so are the models of a program that are trained in turn.
// What one cycle does, such as an update, a cache or a draw of random numbers, reaches the forward of the next.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

class Cycles {
 public:
  // Only a reference of one rank has one clock; any other has one cycle an iteration.
  explicit Cycles(const Alignment& reference);

  // Returns the cycle that a finding with the order of the reference's tensor belongs to, from 0 in each iteration. What
  // was not updated beside the parameters is not what later cycles made of their errors: it belongs to the first step's.
  std::int32_t of(const Finding& finding) const;

 private:
  std::optional<std::int32_t> last_of(const TensorId& id, Phase phase) const;

  std::map<std::int32_t, std::vector<std::uint64_t>>
      starts_;                                       // by iteration: the orders at which cycles 1, 2, ... begin
  std::map<std::int32_t, std::int32_t> first_step_;  // by iteration: the cycle of its first optimizer's step

  // By iteration, micro-batch, phase, and the beginning of the names of a further model, which counts its micro-batches by
  // itself; of all models together without it.
  std::map<std::tuple<std::int32_t, std::int32_t, Phase, std::optional<std::string>>, std::int32_t> last_;
};

}  // namespace ttrace
