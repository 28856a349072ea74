// Judges the updates that could not be computed again, by regression on the reference's (step/regression.h).
//
// Tensors come first: one whose slope, norm or share of elements that stand still is more than correct runs explain is
// wrong. Then all of a class in an iteration together, whose slope is known far better: the wrong ones are left out,
// unless they are the most, and where the others are not the reference's, those are wrong whose own slope says so.
//
// Gradients that are wrong make wrong updates: from the first iteration on in which one fails, nothing is judged.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "align/aligned_trace.h"
#include "step/compared.h"
#include "step/regression.h"

namespace ttrace {

struct JudgedRegression {
  std::vector<Finding> findings;               // `fail`, step-differs
  std::map<TensorId, std::string> judged;      // updates that were, and the class of their optimizer
  std::map<TensorId, std::string> not_judged;  // the others, and why
  double worst = 0;                            // the largest error of a right update, in units of what is allowed
};

// Judges the updates of `wanted`, canonical identities, by tolerances, which must be there.
JudgedRegression judge_by_regression(const AlignedTrace& reference, const Compared& compared,
                                     const std::set<TensorId>& wanted);

}  // namespace ttrace
