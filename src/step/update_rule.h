// The rules by which known optimizers update a parameter, with the options of one step.
#pragma once

#include <optional>
#include <string>

#include "base/trace.h"

namespace ttrace {

enum class UpdateFamily : std::uint8_t { kAdam, kSgd, kLion, kAdafactor };

struct UpdateRule {
  UpdateFamily family = UpdateFamily::kAdam;
  bool decoupled = false;        // weight decay: AdamW's; else it is L2's, and added to the gradient
  bool decay_follows_lr = true;  // where it is decoupled: lr multiplies it
  bool maximize = false;
  bool amsgrad = false, bias_correction = true;  // Adam's
  bool nesterov = false;                         // SGD's
  bool rounds_as_torch = true;  // each operation, in bf16 and fp16: what src/step/low_precision.h makes again
  double lr = 0, weight_decay = 0;
  double beta1 = 0, beta2 = 0, eps = 0;  // Adam's; the betas are Lion's and Adafactor's, too
  double correction_rounding = 0;        // how far the bias corrections may be off, relatively
  double momentum = 0, dampening = 0;    // SGD's
  // Adafactor's (step/whole_tensor.h), whose `eps` is added to the square of the gradient.
  double floor = 0;        // of the root of the second moment, and of its mean; below 0: the machine epsilon
  double threshold = 0;    // that the update is clipped to; 0: it is not
  double least_scale = 0;  // of the parameter, whose size multiplies lr; 0: it does not
  std::int64_t row_mean_dim = -1, column_mean_dim = -1;  // over which means are taken; below 0: there are none
  bool averages_last_dims = false;                       // of two dimensions or more, whatever these two say
  bool caps_lr = false;                                  // by 1 / sqrt(steps)

  bool has_state() const { return family != UpdateFamily::kSgd || momentum != 0; }
  bool is_factored() const { return row_mean_dim >= 0; }
  // What multiplies the parameter, and is taken away.
  double decay() const { return !decoupled ? 0 : decay_follows_lr ? lr * weight_decay : weight_decay; }
};

struct RuleOrReason {
  std::optional<UpdateRule> rule;
  std::string reason;  // why there is none
};

// `step` names an optimizer.
RuleOrReason rule_of(const OptimizerStep& step);

}  // namespace ttrace
