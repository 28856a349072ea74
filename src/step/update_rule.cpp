#include "step/update_rule.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

namespace ttrace {
namespace {

enum class Decay : std::uint8_t {
  kByOption,   // `decoupled_weight_decay` says which; absent: L2
  kDecoupled,  // by the class
  kOpen,       // an attribute of the optimizer says which, and the option where it was recorded
};

struct KnownClass {
  std::string_view name;
  UpdateFamily family;
  Decay decay;
  // Its kernel takes the betas as fp32, and subtracts those and their powers from 1.
  bool betas_are_floats;
};

// Classes whose source says that they follow one of the rules. Of optax, whose optimizers are chains, these are names
// for a rule (src/python/ttrace/_optax.py).
constexpr std::array kKnownClasses = {
    KnownClass{"torch.optim.adam.Adam", UpdateFamily::kAdam, Decay::kByOption, false},
    KnownClass{"torch.optim.adamw.AdamW", UpdateFamily::kAdam, Decay::kDecoupled, false},
    KnownClass{"torch.optim.sgd.SGD", UpdateFamily::kSgd, Decay::kByOption, false},
    KnownClass{"deepspeed.ops.adam.cpu_adam.DeepSpeedCPUAdam", UpdateFamily::kAdam, Decay::kOpen, true},
    KnownClass{"deepspeed.ops.adam.fused_adam.FusedAdam", UpdateFamily::kAdam, Decay::kOpen, true},
    KnownClass{"torch.optim.Adafactor", UpdateFamily::kAdafactor, Decay::kDecoupled, false},
    KnownClass{"optax.adafactor", UpdateFamily::kAdafactor, Decay::kDecoupled, false},
    KnownClass{"optax.adam", UpdateFamily::kAdam, Decay::kByOption, true},
    KnownClass{"optax.lion", UpdateFamily::kLion, Decay::kByOption, true},
    KnownClass{"optax.sgd", UpdateFamily::kSgd, Decay::kByOption, false},
};

// Looks up the options that the rule needs; remembers the first that is not there.
class OptionReader {
 public:
  explicit OptionReader(const OptimizerStep& step) : options_(step.options) {}

  double required(const std::string& name) {
    const auto found = options_.find(name);
    if (found != options_.end()) return found->second;
    if (missing_.empty()) missing_ = name;
    return 0;
  }
  double optional(const std::string& name, double otherwise) const {
    const auto found = options_.find(name);
    return found == options_.end() ? otherwise : found->second;
  }
  // Returns -1 where it is not there, and what no tensor has where it is none.
  std::int64_t dimension(const std::string& name) const {
    const double dim = optional(name, -1);
    return dim >= -1 && dim < static_cast<double>(kMaxDims) ? static_cast<std::int64_t>(dim)
                                                            : static_cast<std::int64_t>(kMaxDims);
  }
  bool has(const std::string& name) const { return options_.contains(name); }
  const std::string& missing() const { return missing_; }

 private:
  const std::map<std::string, double>& options_;
  std::string missing_;
};

// PyTorch's has a form of its own: eps is no term but a floor, lr is capped and multiplies the weight decay, and the last
// two dimensions are averaged.
void read_adafactor(const OptimizerStep& step, OptionReader& options, UpdateRule& rule) {
  rule.decoupled = true;
  if (!step.optimizer.starts_with("optax.")) {
    rule.beta2 = 1 - std::pow(step.step.value_or(1), options.required("beta2_decay"));
    rule.threshold = options.required("d");
    rule.floor = options.optional("eps1", -1);
    rule.least_scale = options.required("eps2");
    rule.caps_lr = rule.averages_last_dims = true;
    return;
  }
  rule.decay_follows_lr = false;
  rule.beta1 = options.optional("beta1", 0);
  rule.beta2 = options.required("beta2");
  rule.eps = options.required("eps");
  rule.threshold = options.optional("clipping_threshold", 0);
  rule.least_scale = options.optional("min_scale", 0);
  rule.row_mean_dim = options.dimension("row_mean_dim");
  rule.column_mean_dim = options.dimension("column_mean_dim");
  rule.correction_rounding = epsilon_of(Dtype::kFloat32) / (1 - rule.beta2);
}

}  // namespace

RuleOrReason rule_of(const OptimizerStep& step) {
  const KnownClass* known = nullptr;
  for (const KnownClass& one : kKnownClasses) {
    if (one.name == step.optimizer) known = &one;
  }
  if (known == nullptr) return {std::nullopt, fmt::format("the rule of {} is not known", printable(step.optimizer))};
  OptionReader options(step);
  UpdateRule rule;
  rule.family = known->family;
  rule.lr = options.required("lr");
  rule.weight_decay = options.optional("weight_decay", 0);
  rule.rounds_as_torch = !step.optimizer.starts_with("optax.");
  rule.maximize = options.optional("maximize", 0) != 0;
  if (known->family == UpdateFamily::kSgd) {
    rule.momentum = options.optional("momentum", 0);
    rule.dampening = options.optional("dampening", 0);
    rule.nesterov = options.optional("nesterov", 0) != 0;
  } else if (known->family == UpdateFamily::kAdafactor) {
    read_adafactor(step, options, rule);
  } else {
    rule.beta1 = options.required("beta1");
    rule.beta2 = options.required("beta2");
    if (known->family == UpdateFamily::kAdam) {
      rule.eps = options.required("eps");
      rule.amsgrad = options.optional("amsgrad", 0) != 0;
      rule.bias_correction = options.optional("bias_correction", 1) != 0;
    }
    rule.decoupled = known->decay == Decay::kDecoupled || options.optional("decoupled_weight_decay", 0) != 0;
    if (known->betas_are_floats) {
      rule.beta1 = static_cast<float>(rule.beta1);
      rule.beta2 = static_cast<float>(rule.beta2);
      rule.correction_rounding = epsilon_of(Dtype::kFloat32) / 2 * (1 / (1 - rule.beta1) + 1 / (1 - rule.beta2));
    }
    if (known->decay == Decay::kOpen && rule.weight_decay != 0 && !options.has("decoupled_weight_decay")) {
      return {std::nullopt, "whether its weight decay is decoupled was not recorded"};
    }
  }
  if (!options.missing().empty()) {
    return {std::nullopt, fmt::format("option '{}' of its optimizer was not recorded", options.missing())};
  }
  return {rule, ""};
}

}  // namespace ttrace
