// The rules by which known optimizers update a parameter, with the options of one step.
#pragma once

#include <optional>
#include <string>

#include "base/trace.h"

namespace ttrace {

enum class UpdateFamily : std::uint8_t { kAdam, kSgd, kLion };

struct UpdateRule {
  UpdateFamily family = UpdateFamily::kAdam;
  double lr = 0, weight_decay = 0;
  bool decoupled = false;  // weight decay: AdamW's; else it is L2's, and added to the gradient
  bool maximize = false;
  double beta1 = 0, beta2 = 0, eps = 0;  // Adam's; the betas are Lion's, too
  bool amsgrad = false, bias_correction = true;
  double correction_rounding = 0;      // how far the bias corrections may be off, relatively
  double momentum = 0, dampening = 0;  // SGD's
  bool nesterov = false;
  bool rounds_as_torch = true;  // each operation, in bf16 and fp16: what src/step/low_precision.h makes again

  bool has_state() const { return family != UpdateFamily::kSgd || momentum != 0; }
};

struct RuleOrReason {
  std::optional<UpdateRule> rule;
  std::string reason;  // why there is none
};

// `step` names an optimizer.
RuleOrReason rule_of(const OptimizerStep& step);

}  // namespace ttrace
