#include "step/low_precision.h"

#include "step/rounding.h"

namespace ttrace {
namespace {

// One element of a step: d, q, and the size of d without cancellation.
struct Move {
  double update, decayed, size;
};

// An arithmetic with what the options of a step give in it.
class Steps {
 public:
  Steps(const StepArithmetic& arithmetic, const UpdateRule& rule, double count, const Rounding& rounding,
        const StepElements& elements)
      : arithmetic_(arithmetic), rule_(rule), rounding_(rounding), elements_(elements) {
    l2_ = rule.decoupled ? 0 : added(rule.weight_decay);
    keep_ = rule.decoupled ? factor(1 - rule.lr * rule.weight_decay) : 1;
    decays_ = rule.decoupled && rule.weight_decay != 0;
    momentum_ = factor(rule.momentum);
    undamped_ = added(1 - rule.dampening);
    ahead_ = added(rule.momentum);
    rate_ = added(rule.lr);
    beta2_ = factor(rule.beta2);
    eps_ = added(rule.eps);
    step_size_ = rule.lr / (rule.bias_correction ? 1 - std::pow(rule.beta1, count) : 1);
    second_root_ = std::sqrt(rule.bias_correction ? 1 - std::pow(rule.beta2, count) : 1);
  }

  Move adam(std::size_t i) const {
    const double value = elements_.value[i], first = elements_.first[i];
    const double g = gradient(i);
    const double mean = op(first + (1 - rule_.beta1) * (g - first));
    double second = op(op(elements_.second[i] * beta2_) + (1 - rule_.beta2) * g * g);
    if (rule_.amsgrad) second = std::max(second, elements_.largest[i]);
    const double moved = step_size_ / op(op(op(std::sqrt(second)) / second_root_) + eps_);
    const double size = rule_.beta1 * std::abs(first) + (1 - rule_.beta1) * std::abs(g);
    return {-moved * mean, decays_ ? op(value * keep_) : value, moved * size};
  }

  Move sgd(std::size_t i) const {
    const double value = elements_.value[i], g = gradient(i);
    double direction = g, size = std::abs(g);
    if (rule_.momentum != 0) {
      const double before = elements_.first[i];
      const double buffer = elements_.state_is_zero ? g : op(op(before * momentum_) + undamped_ * g);
      direction = rule_.nesterov ? op(g + ahead_ * buffer) : buffer;
      size += elements_.state_is_zero ? 0 : std::abs(before) * rule_.momentum;
    }
    return {-rate_ * direction, value, rule_.lr * size};
  }

 private:
  double op(double value) const { return arithmetic_.rounds_each_operation ? rounding_.rounded(value) : value; }
  double added(double scalar) const { return arithmetic_.rounds_added_scalars ? rounding_.rounded(scalar) : scalar; }
  double factor(double scalar) const { return arithmetic_.rounds_factors ? rounding_.rounded(scalar) : scalar; }
  double gradient(std::size_t i) const {
    const double given = (rule_.maximize ? -1 : 1) * elements_.clip_factor * elements_.gradient[i];
    return l2_ == 0 ? given : op(given + l2_ * elements_.value[i]);
  }

  const StepArithmetic& arithmetic_;
  const UpdateRule& rule_;
  const Rounding& rounding_;
  const StepElements& elements_;
  double l2_, keep_, momentum_, undamped_, ahead_, rate_, beta2_, eps_, step_size_, second_root_;
  bool decays_;
};

}  // namespace

void MoveSums::add(const MoveSums& other, double weight) {
  steps += weight * other.steps;
  moved += weight * other.moved;
  low += weight * other.low;
  high += weight * other.high;
  square += weight * other.square;
}

double MoveSums::excess() const {
  const double outside = std::max({moved - high, low - moved, 0.0});
  return outside == 0 ? 0 : outside / std::sqrt(square);
}

std::size_t best_of(const MovesByArithmetic& sums) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < sums.size(); ++i) {
    const double mine = sums[i].excess(), other = sums[best].excess();
    if (mine < other || (mine == other && sums[i].square < sums[best].square)) best = i;
  }
  return best;
}

void add_moves(const UpdateRule& rule, double count, Dtype dtype, const StepElements& elements, double factor,
               MovesByArithmetic& sums) {
  const Rounding rounding(dtype);
  const double off = rounding.half_epsilon;
  for (std::size_t a = 0; a < kStepArithmetics.size(); ++a) {
    const Steps steps(kStepArithmetics[a], rule, count, rounding, elements);
    MoveSums sum;
    for (std::size_t i = 0; i < elements.value.size(); ++i) {
      const Move move = rule.family == UpdateFamily::kAdam ? steps.adam(i) : steps.sgd(i);
      const double update = move.update * factor, value = elements.value[i];
      const double scale = std::max(2 * rounding.half_ulp(std::abs(value)), move.size * factor);
      const double right = rounding.rounded(move.decayed + update);
      const double sign = update > 0 ? 1 : update < 0 ? -1 : 0;
      const double moved = sign * (elements.delta[i] - (right - value)) / scale;
      if (!std::isfinite(moved)) continue;
      sum.steps += std::abs(update) / scale;
      sum.moved += moved;
      sum.low += sign * (rounding.rounded(move.decayed + update * (1 - off)) - right) / scale;
      sum.high += sign * (rounding.rounded(move.decayed + update * (1 + off)) - right) / scale;
      sum.square += moved * moved;
    }
    sums[a].add(sum);
  }
}

}  // namespace ttrace
