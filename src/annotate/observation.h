// Holds what one candidate shows of how its tensors lie, before it becomes rules.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "annotate/propose.h"
#include "annotate/subjects.h"

namespace ttrace {

// One axis, along which the tensors of a subject lie.
struct AxisObservation {
  AxisPlacement placement;
  bool certain = false;
  bool by_default = false;  // it lies so without a rule as well
  std::string why;
  bool is_far = false;         // no tensor comes near the reference in any way that the shapes allow
  bool is_order_open = false;  // it comes as near in another order of the elements, and is not the same then
};

// One subject.
struct SubjectObservation {
  std::vector<AxisObservation> axes;  // outermost first
  bool follows = false;               // it lies as the kind that leads its family, so that no rule need say it
  std::string remark;                 // what could not be found out, or looks wrong
  std::uint64_t order = 0;            // of execution
};
using Observations = std::map<SubjectKey, SubjectObservation>;

// The factor that activation gradients share.
struct LossScaleObservation {
  double value = 1;
  std::vector<std::string> factors;  // that have this value on the candidate's mesh, the likelier first: `dp`, `1/tp`
  bool certain = false;              // that the factor is legal
  std::string why;
};

struct ObservedCandidate {
  std::string directory;
  Mesh mesh;
  Observations tensors;
  std::vector<DraftLine> parallelism;
  std::optional<LossScaleObservation> loss_scale;  // absent where the gradients do not tell
};

// The kinds that are placed alike. The first is the lead, which a rule names; the others follow it.
const std::vector<std::vector<Kind>>& kind_families();

}  // namespace ttrace
