// Tells tensors that are right in another micro-batch or iteration, or another layer: how a program is laid out shows in
// all of them, so that it is no layout that makes such a tensor differ in one.
#pragma once

#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/finding.h"

namespace ttrace {

class RightElsewhere {
 public:
  // `findings`: those that are right among them count.
  explicit RightElsewhere(std::span<const Finding> findings);

  // True where the tensor of another micro-batch or iteration passed, for one that did not.
  bool contains(const TensorId& id) const;

 private:
  std::set<TensorId> right_;  // without micro-batch and iteration
};

// The same of layers: of `blocks.3.norm` another is `blocks.4.norm`.
class RightInLayers {
 public:
  explicit RightInLayers(std::span<const Finding> findings);

  // Returns the tensors of other layers that passed, in the micro-batch.
  std::span<const TensorId> others(const TensorId& id) const;

 private:
  std::map<TensorId, std::vector<TensorId>> right_;  // by the tensor with `*` for the numbers in its name
};

}  // namespace ttrace
