#include "step/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "base/tensor_name.h"
#include "step/series.h"
#include "step/update_rule.h"

namespace ttrace {
namespace {

// Options are stored as fp32 by some programs and as fp64 by others.
constexpr double kOptionTolerance = 1e-6;

// How far two numbers are apart, relatively to the larger one: 1 at most where they have one sign.
double distance(double a, double b) {
  const double larger = std::max(std::abs(a), std::abs(b));
  return a == b ? 0 : std::abs(a - b) / larger;
}

// Two numbers that differ, with as many digits as show it.
std::string describe_numbers(std::string_view what, double candidate, double reference) {
  for (const int digits : {4, 6, 9}) {
    const std::string a = fmt::format("{:.{}g}", candidate, digits), b = fmt::format("{:.{}g}", reference, digits);
    if (a != b) return fmt::format("{} {}, reference {}", what, a, b);
  }
  return fmt::format("{} {}, reference {}", what, candidate, reference);
}

class OptionWords {
 public:
  explicit OptionWords(const OptionSamples* samples) : samples_(samples) {}

  // `option` is the name that the program has for it, and `what` people's.
  void number(const std::string& option, std::string_view what, double candidate, double reference) {
    const double allowed = allowed_of(option);
    if (distance(candidate, reference) <= std::max(kOptionTolerance, allowed)) return;
    add(describe_numbers(what, candidate, reference) +
        (allowed > kOptionTolerance ? fmt::format(" (may differ by {:.2g})", allowed) : ""));
  }
  void flag(std::string_view what, bool candidate, bool reference) {
    if (candidate != reference)
      add(fmt::format("{} {}, reference {}", what, candidate ? "on" : "off", reference ? "on" : "off"));
  }
  void add(const std::string& words) { text_ += (text_.empty() ? "" : "; ") + words; }
  const std::string& text() const { return text_; }

 private:
  double allowed_of(const std::string& option) const {
    if (samples_ == nullptr) return 0;
    const auto found = samples_->find(option);
    return found == samples_->end() ? 0 : allowed_for_option(found->second);
  }

  const OptionSamples* samples_;
  std::string text_;
};

void compare_rules(const UpdateRule& candidate, const UpdateRule& reference, OptionWords& words) {
  words.number("lr", "learning rate", candidate.lr, reference.lr);
  if (candidate.family == UpdateFamily::kAdafactor) {
    words.number("beta1", "beta1", candidate.beta1, reference.beta1);
    words.number("beta2", "beta2", candidate.beta2, reference.beta2);
    words.number("eps", "eps", candidate.eps, reference.eps);
    words.number("eps1", "eps1", candidate.floor, reference.floor);
    words.number("clipping_threshold", "clipping threshold", candidate.threshold, reference.threshold);
    words.number("min_scale", "smallest scale of a parameter", candidate.least_scale, reference.least_scale);
    words.flag("factored second moment", candidate.is_factored(), reference.is_factored());
  } else if (candidate.family != UpdateFamily::kSgd) {
    words.number("beta1", "beta1", candidate.beta1, reference.beta1);
    words.number("beta2", "beta2", candidate.beta2, reference.beta2);
    words.number("eps", "eps", candidate.eps, reference.eps);
    words.flag("amsgrad", candidate.amsgrad, reference.amsgrad);
    words.flag("bias correction", candidate.bias_correction, reference.bias_correction);
  } else {
    words.number("momentum", "momentum", candidate.momentum, reference.momentum);
    if (candidate.momentum != 0) words.number("dampening", "dampening", candidate.dampening, reference.dampening);
    words.flag("nesterov", candidate.nesterov, reference.nesterov);
  }
  words.flag("maximize", candidate.maximize, reference.maximize);
  words.number("weight_decay", "weight decay", candidate.weight_decay, reference.weight_decay);
  if (candidate.weight_decay != 0) words.flag("decoupled weight decay", candidate.decoupled, reference.decoupled);
}

// Compares, for a class whose rule is not known, the options whose names say what they are.
void compare_named(const OptimizerStep& candidate, const OptimizerStep& reference, OptionWords& words) {
  const std::pair<const char*, const char*> names[] = {
      {"lr", "learning rate"},  {"beta1", "beta1"},
      {"beta2", "beta2"},       {"beta3", "beta3"},
      {"eps", "eps"},           {"weight_decay", "weight decay"},
      {"momentum", "momentum"}, {"dampening", "dampening"},
      {"nesterov", "nesterov"}, {"maximize", "maximize"},
      {"amsgrad", "amsgrad"},   {"alpha", "alpha"},
  };
  for (const auto& [name, what] : names) {
    const auto a = candidate.options.find(name), b = reference.options.find(name);
    if (a != candidate.options.end() && b != reference.options.end()) words.number(name, what, a->second, b->second);
  }
}

// What schedules have made of the option `name` of the step for the next one; it is in `options`.
double option_after(const OptimizerStep& step, const std::string& name) {
  const auto changed = step.options_after->find(name);
  return changed == step.options_after->end() ? step.options.find(name)->second : changed->second;
}

// True for a switch of an optimizer whose rule is not known, in both steps: how it runs (over which shards, by which kernel)
// is set by these, too, and what it makes tells.
bool is_switch(const std::string& name, const OptimizerStep& candidate, const OptimizerStep& reference) {
  const auto is_bool = [](double value) { return value == 0 || value == 1; };
  const double a = candidate.options.at(name), b = reference.options.at(name);
  return a != b && is_bool(a) && is_bool(b) && a == option_after(candidate, name) && b == option_after(reference, name);
}

// Compares the options for the next step, where those of this one are equal.
void compare_options_after(const OptimizerStep& candidate, const OptimizerStep& reference, OptionWords& words) {
  if (!candidate.options_after || !reference.options_after) return;
  for (const auto& [name, value] : reference.options) {
    if (candidate.options.contains(name) && !is_switch(name, candidate, reference)) {
      words.number(name, fmt::format("for the next step {}", printable(name)), option_after(candidate, name),
                   option_after(reference, name));
    }
  }
}

// Returns how far the option `name` of both steps is apart, in this step or for the next one: 1 for all that is more.
double distance_of_option(const OptimizerStep& step, const OptimizerStep& reference, const std::string& name) {
  double apart = distance(step.options.at(name), reference.options.at(name));
  if (step.options_after && reference.options_after) {
    apart = std::max(apart, distance(option_after(step, name), option_after(reference, name)));
  }
  return std::min(apart, 1.0);
}

std::string describe_class(const OptimizerStep& step) {
  return step.optimizer.empty() ? "in no optimizer" : fmt::format("optimizer {}", printable(step.optimizer));
}

}  // namespace

Dtype updated_dtype(const StatedStep& stated) {
  return dtype_from_name(stated.step->master).value_or(stated.parameter);
}

StatedSteps stated_steps(const AlignedTrace& aligned) {
  const ParameterNames names = parameter_names(aligned.alignment);
  StatedSteps stated;
  std::set<std::int32_t> seen;
  for (const RankTrace& rank : aligned.trace->ranks) {
    if (!seen.insert(rank.rank).second) continue;
    std::map<std::pair<std::int32_t, std::string>, Dtype> dtypes;
    for (const Entry& entry : rank.entries) {
      if (entry.id.kind == Kind::kParam) dtypes.try_emplace({entry.id.chunk, entry.id.name}, entry.dtype);
    }
    for (const OptimizerStep& step : rank.optimizer_steps) {
      for (const std::string& local : step.parameters) {
        const auto name = names.find({rank.rank, step.chunk, local});
        if (name == names.end()) continue;
        const auto dtype = dtypes.find({step.chunk, local});
        stated[{step.iteration, name->second}].push_back(
            {rank.rank, &step, dtype == dtypes.end() ? Dtype::kFloat32 : dtype->second});
      }
    }
  }
  // Where ranks share an optimizer's work, only some have a part of the parameter in theirs.
  for (auto& [key, steps] : stated) {
    const auto in_none = std::stable_partition(steps.begin(), steps.end(),
                                               [](const StatedStep& one) { return !one.step->optimizer.empty(); });
    if (in_none != steps.begin()) steps.erase(in_none, steps.end());
  }
  return stated;
}

bool are_masters(const OptimizerStep& step) {
  return !step.parameters.empty() && step.parameters.front().starts_with("(masters).");
}

std::string describe_other_development(const StatedStep& reference, std::span<const OptimizerStep* const> masters,
                                       const AllowedOptions& allowed) {
  const OptimizerStep& wanted = *reference.step;
  std::string first;
  for (const OptimizerStep* step : masters) {
    if (step->optimizer != wanted.optimizer || !step->options_after || !wanted.options_after) continue;
    OptionWords words(allowed.samples);
    for (const char* name : {"lr", "d", "weight_decay", "momentum", "beta1", "beta2", "eps"}) {  // `d`: D-Adaptation's
      const auto mine = step->options.find(name), other = wanted.options.find(name);
      if (mine == step->options.end() || other == wanted.options.end()) continue;
      if (mine->second == 0 || other->second == 0) continue;
      words.number(name, fmt::format("for the next step {}", name), option_after(*step, name),
                   option_after(wanted, name) * (mine->second / other->second));
    }
    if (words.text().empty()) return "";
    if (first.empty()) first = words.text();
  }
  return first;
}

bool are_comparable(const OptimizerStep& reference, const OptimizerStep& candidate) {
  if (reference.optimizer == candidate.optimizer) return true;
  return (reference.optimizer.empty() || rule_of(reference).rule) &&
         (candidate.optimizer.empty() || rule_of(candidate).rule);
}

OptionTolerances measure_option_tolerances(const AlignedTrace& reference, std::span<const AlignedTrace> runs) {
  OptionTolerances tolerances;
  const StatedSteps of_reference = stated_steps(reference);
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (const auto& [key, steps] : stated_steps(runs[r])) {
      const auto wanted = of_reference.find(key);
      if (wanted == of_reference.end()) continue;
      const OptimizerStep &step = *steps.front().step, &other = *wanted->second.front().step;
      if (step.optimizer != other.optimizer) continue;
      for (const auto& [name, value] : other.options) {
        const double apart = step.options.contains(name) ? distance_of_option(step, other, name) : 0;
        if (!(apart > 0)) continue;
        UpdateSamples& samples = tolerances[{other.optimizer, key.first}][name];
        samples.resize(runs.size(), 0.0);
        samples[r] = std::max(samples[r], apart);
      }
    }
  }
  return tolerances;
}

std::string describe_other_options(const StatedStep& reference, const StatedStep& candidate,
                                   const AllowedOptions& allowed) {
  const OptimizerStep &a = *candidate.step, &b = *reference.step;
  if (a.optimizer.empty() != b.optimizer.empty()) {
    return fmt::format("{}, reference {}", describe_class(a), describe_class(b));
  }
  if (a.optimizer.empty() || !are_comparable(b, a)) return "";
  OptionWords words(allowed.samples);
  const RuleOrReason of_candidate = rule_of(a), of_reference = rule_of(b);
  if (of_candidate.rule && of_reference.rule) {
    if (of_candidate.rule->family != of_reference.rule->family) {
      return fmt::format("{}, reference {}", describe_class(a), describe_class(b));
    }
    compare_rules(*of_candidate.rule, *of_reference.rule, words);
  } else {
    compare_named(a, b, words);
  }
  if (words.text().empty()) compare_options_after(a, b, words);
  if (a.step && b.step && *a.step != *b.step) words.add(fmt::format("step {:g}, reference {:g}", *a.step, *b.step));
  if (a.calls != b.calls) {
    words.add(
        fmt::format("stepped {} time{} in the iteration, reference {}", a.calls, a.calls == 1 ? "" : "s", b.calls));
  }
  if (epsilon_of(updated_dtype(candidate)) > epsilon_of(updated_dtype(reference))) {
    words.add(fmt::format("updates a value in {}, reference {}", name_of(updated_dtype(candidate)),
                          name_of(updated_dtype(reference))));
  }
  if (allowed.clip >= 0 && a.clip_factor && b.clip_factor &&
      !(distance(*a.clip_factor, *b.clip_factor) <= allowed.clip)) {
    words.add(describe_numbers("gradients clipped by", *a.clip_factor, *b.clip_factor) +
              fmt::format(" (may differ by {:.2g})", allowed.clip));
  }
  return words.text();
}

}  // namespace ttrace
