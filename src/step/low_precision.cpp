#include "step/low_precision.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "step/rounding.h"

namespace ttrace {
namespace {

constexpr std::size_t kBatch = 256;  // elements whose numbers lie in the first level cache

// Holds, for a batch of elements, d, q, and the size of d without cancellation.
struct Moves {
  std::array<double, kBatch> update, decayed, size;
};

// The elements [begin, begin + count) of a step. Loops over plain pointers, without choices in them, are computed
// several elements at a time.
template <StepArithmetic arithmetic>
class Steps {
 public:
  Steps(const UpdateRule& rule, double count, const Rounding& rounding, const StepElements& elements)
      : rule_(rule), rounding_(rounding), elements_(elements) {
    sign_ = (rule.maximize ? -1 : 1) * elements.clip_factor;
    l2_ = rule.decoupled ? 0 : added(rule.weight_decay);
    step_size_ = rule.lr / (rule.bias_correction ? 1 - std::pow(rule.beta1, count) : 1);
    second_root_ = std::sqrt(rule.bias_correction ? 1 - std::pow(rule.beta2, count) : 1);
  }

  void step(std::size_t begin, std::size_t count, Moves& moves) const {
    std::array<double, kBatch> gradients;
    const double* __restrict value = elements_.value.data() + begin;
    const double* __restrict given = elements_.gradient.data() + begin;
    double* __restrict gradient = gradients.data();
    for (std::size_t i = 0; i < count; ++i) gradient[i] = sign_ * given[i];
    if (l2_ != 0) {
      for (std::size_t i = 0; i < count; ++i) gradient[i] = op(gradient[i] + l2_ * value[i]);
    }
    rule_.family == UpdateFamily::kAdam ? adam(begin, count, gradient, moves) : sgd(begin, count, gradient, moves);
  }

 private:
  void adam(std::size_t begin, std::size_t count, const double* __restrict gradient, Moves& moves) const {
    const double* __restrict value = elements_.value.data() + begin;
    const double* __restrict first = elements_.first.data() + begin;
    const double* __restrict second = elements_.second.data() + begin;
    const double* __restrict largest = elements_.largest.data() + begin;
    double* __restrict update = moves.update.data(), * __restrict decayed = moves.decayed.data();
    double* __restrict size = moves.size.data();
    const double beta1 = rule_.beta1, new1 = 1 - beta1, new2 = 1 - rule_.beta2, beta2 = factor(rule_.beta2);
    const double eps = added(rule_.eps), root = second_root_, step_size = step_size_, least = rule_.amsgrad ? 1 : 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double g = gradient[i], mean = op(first[i] + new1 * (g - first[i]));
      const double square = op(op(second[i] * beta2) + new2 * g * g), kept = least * largest[i];
      const double moved = step_size / op(op(op(std::sqrt(kept > square ? kept : square)) / root) + eps);
      update[i] = -moved * mean;
      size[i] = moved * (beta1 * std::abs(first[i]) + new1 * std::abs(g));
      decayed[i] = value[i];
    }
    if (!rule_.decoupled || rule_.weight_decay == 0) return;
    const double keep = factor(1 - rule_.lr * rule_.weight_decay);
    for (std::size_t i = 0; i < count; ++i) decayed[i] = op(value[i] * keep);
  }

  void sgd(std::size_t begin, std::size_t count, const double* __restrict gradient, Moves& moves) const {
    const double momentum = factor(rule_.momentum), undamped = added(1 - rule_.dampening);
    const double ahead = added(rule_.momentum), rate = added(rule_.lr);
    const bool has_buffer = rule_.momentum != 0 && !elements_.state_is_zero;
    for (std::size_t i = 0; i < count; ++i) {
      const double before = has_buffer ? elements_.first[begin + i] : 0;
      const double buffer = has_buffer ? op(op(before * momentum) + undamped * gradient[i]) : gradient[i];
      const double direction = rule_.nesterov ? op(gradient[i] + ahead * buffer) : buffer;
      moves.update[i] = -rate * direction;
      moves.decayed[i] = elements_.value[begin + i];
      moves.size[i] = rule_.lr * (std::abs(gradient[i]) + rule_.momentum * std::abs(before));
    }
  }

  double op(double value) const { return arithmetic.rounds_each_operation ? rounding_.rounded(value) : value; }
  double added(double scalar) const { return arithmetic.rounds_added_scalars ? rounding_.rounded(scalar) : scalar; }
  double factor(double scalar) const { return arithmetic.rounds_factors ? rounding_.rounded(scalar) : scalar; }

  const UpdateRule& rule_;
  const Rounding rounding_;
  const StepElements& elements_;
  double sign_, l2_, step_size_, second_root_;
};

// Adds a batch; its sums are made in the order of the elements.
void add_batch(const Moves& moves, const double* value, const double* delta, std::size_t count, double factor,
               const Rounding& rounding, MoveSums& sum) {
  std::array<double, kBatch> shares, moved, low, high;
  const double off = rounding.half_epsilon;
  for (std::size_t i = 0; i < count; ++i) {
    const double update = moves.update[i] * factor, decayed = moves.decayed[i];
    const double units = 2 * rounding.half_ulp(std::abs(value[i])), size = moves.size[i] * factor;
    const double right = rounding.rounded(decayed + update);
    const double to_share = (update > 0 ? 1.0 : update < 0 ? -1.0 : 0.0) / (units > size ? units : size);
    shares[i] = update * to_share;
    moved[i] = (delta[i] - (right - value[i])) * to_share;
    low[i] = (rounding.rounded(decayed + update * (1 - off)) - right) * to_share;
    high[i] = (rounding.rounded(decayed + update * (1 + off)) - right) * to_share;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(moved[i])) continue;
    sum.steps += shares[i];
    sum.moved += moved[i];
    sum.low += low[i];
    sum.high += high[i];
    sum.square += moved[i] * moved[i];
  }
}

template <std::size_t... indices>
void add_all(const UpdateRule& rule, double count, const Rounding& rounding, const StepElements& elements,
             double factor, MovesByArithmetic& sums, std::index_sequence<indices...>) {
  const auto add = [&]<std::size_t index> {
    const Steps<kStepArithmetics[index]> steps(rule, count, rounding, elements);
    MoveSums sum;
    Moves moves;
    for (std::size_t begin = 0; begin < elements.value.size(); begin += kBatch) {
      const std::size_t size = std::min(kBatch, elements.value.size() - begin);
      steps.step(begin, size, moves);
      add_batch(moves, &elements.value[begin], &elements.delta[begin], size, factor, rounding, sum);
    }
    sums[index].add(sum);
  };
  (add.template operator()<indices>(), ...);
}

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
  add_all(rule, count, Rounding(dtype), elements, factor, sums, std::make_index_sequence<kStepArithmetics.size()>());
}

}  // namespace ttrace
