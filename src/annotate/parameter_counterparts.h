// Finds which parameters of one program are which of another's, by equal values alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "annotate/pattern_trial.h"

namespace ttrace {

// Parameters that correspond, and the pattern by which the values are equal.
struct ParameterMatch {
  // The names are in the order of the pattern. A name may number an axis, as `experts.{e}` does: then it stands for
  // several.
  std::vector<std::string> names[2];  // the reference's, the candidate's
  PatternSides tensors;
  std::string pattern;  // "same", or with the reference on the left
  AxisSizes sizes;      // of axes that shapes do not tell, or may not
  // The pattern of the leading dimension of each tensor, where it has two and the last is the same on both sides: what
  // an output's last dimension looks like, and a bias.
  std::vector<std::string> rows[2];
  std::string remark;
  bool is_predicted = false;  // by what other layers do; its values are others
};

// What the values of one layer say, and not those of its sisters (odd_layers.h).
struct OddMatch {
  ParameterMatch match;
  std::size_t layers = 1, all = 1;  // that do so, of how many
};

struct ParameterMatches {
  std::vector<ParameterMatch> matches;
  std::vector<OddMatch> odd;
  std::vector<std::string> remarks;  // on what shares values, and yet no pattern was found for
};

// The parameters before the first step, in order of execution.
std::vector<const LogicalTensor*> initial_parameters_of(const Alignment& alignment);

// The narrowest dtype that holds them all, where the sides differ: values are compared rounded to it.
std::optional<Dtype> common_dtype(const std::vector<const LogicalTensor*>& reference,
                                  const std::vector<const LogicalTensor*>& candidate);

ParameterMatches match_parameters(const std::vector<const LogicalTensor*>& reference,
                                  const std::vector<const LogicalTensor*>& candidate, std::optional<Dtype> dtype);

// True where no element differs from another.
bool is_constant(const LogicalTensor& tensor);

}  // namespace ttrace
