// Tells tensors that are right in another micro-batch or iteration: how a program is laid out shows in all of them, so
// that it is no layout that makes such a tensor differ in one.
#pragma once

#include <set>
#include <span>

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

}  // namespace ttrace
