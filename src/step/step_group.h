// Judges the steps of one optimizer in one iteration over all elements together, where they are computed again to the
// bit (step/low_precision.h): tensor by tensor, and over all tensors.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "step/wording.h"

namespace ttrace {

class StepGroup {
 public:
  // The ranks' parts of the update of `tensor`, which are right in each element. Both must outlive the group.
  void add(const LogicalTensor& tensor, std::span<const WrongPart> parts);

  // Returns what is wrong, by the update that it is said of. What is wrong over all tensors is said of those that show
  // it, or of the one that shows most.
  std::map<TensorId, std::string> judge() const;

 private:
  struct Member {
    const LogicalTensor* tensor;
    std::span<const WrongPart> parts;
    double weight;  // of a part's element: copies of one element count as one
    MovesByArithmetic moves;
  };

  static double excess(const MovesByArithmetic& moves);
  static double factor_of(std::span<const Member* const> members);
  static std::string describe(std::span<const Member* const> members, double factor);

  std::vector<Member> members_;
};

}  // namespace ttrace
