#include "step/replay.h"

#include <algorithm>
#include <cmath>

#include "numeric/convert.h"
#include "step/rounding.h"

namespace ttrace {
namespace {

constexpr std::int64_t kBlock = 2048;  // elements: all of a block's numbers lie in the second level cache

using Numbers = std::vector<double>;

bool is_half(Dtype dtype) { return dtype == Dtype::kBFloat16 || dtype == Dtype::kFloat16; }
bool is_narrow(Dtype dtype) { return epsilon_of(dtype) > epsilon_of(Dtype::kFloat32); }

// The numbers that go from one iteration to the next, of one block.
struct Carried {
  Numbers first = Numbers(kBlock), second = Numbers(kBlock), largest = Numbers(kBlock);  // the moments
  Numbers size = Numbers(kBlock);                                                        // the moving average of |g|
  Numbers value = Numbers(kBlock);                                                       // that is updated
  Numbers doubt = Numbers(kBlock);  // how far `value` may be from it, where subtraction has rounded
};

struct Block {
  Numbers gradient = Numbers(kBlock), delta = Numbers(kBlock), parameter = Numbers(kBlock);
  Numbers direction = Numbers(kBlock), expected = Numbers(kBlock), bound = Numbers(kBlock);
  Numbers low = Numbers(kBlock), high = Numbers(kBlock), after = Numbers(kBlock);
  std::vector<std::byte> bytes = std::vector<std::byte>(kBlock * sizeof(double));
};

// Sums of the fit.
struct FitSums {
  double uu = 0, up = 0, pp = 0, du = 0, dp = 0, dd = 0;
  std::int64_t elements = 0;

  StepFit solve(bool with_decay) const {
    StepFit fit;
    const double determinant = uu * pp - up * up;
    if (uu == 0) return fit;
    if (with_decay && determinant > 1e-9 * uu * pp) {
      fit.lr = -(du * pp - dp * up) / determinant;
      fit.decay = -(dp * uu - du * up) / determinant;
    } else {
      fit.lr = -du / uu;
    }
    const double left = dd + 2 * (fit.lr * du + fit.decay * dp) + fit.lr * fit.lr * uu + fit.decay * fit.decay * pp +
                        2 * fit.lr * fit.decay * up;
    fit.explains = elements > 2 && left <= static_cast<double>(elements) * 1.0 + 1e-9 * dd;
    return fit;
  }
};

class BlockReplay {
 public:
  BlockReplay(std::int64_t begin, std::int64_t count, double factor, Block& block, Carried& carried)
      : begin_(begin), count_(count), factor_(factor), block_(block), carried_(carried) {}

  // `whole`: of the update that is computed next; null where its rule needs none.
  void set_whole(const WholeTensor* whole) { whole_ = whole; }

  // Computes what the update would be if the gradient were larger by `shift` in every element.
  void expect(const RankUpdate& update, bool is_carried_on, double shift) {
    read(update.delta, block_.delta);
    find_value(update);
    if (update.reason.empty()) step(update, shift);
    if (is_carried_on) carry_value(update);
  }

  // Returns what `expect` or `run` computed last, for each element.
  const Numbers& expected() const { return block_.expected; }

  // Computes one update, and adds what is measured to `tally`. `is_carried_on`: the next one begins with the value that
  // this one leaves.
  void run(const RankUpdate& update, bool is_carried_on, UpdateTally& tally, UpdateDetail* detail, FitSums* sums) {
    read(update.delta, block_.delta);
    find_value(update);
    if (update.reason.empty()) compute_again(update, tally, detail, sums);
    check_copy(update, tally, detail);
    if (is_carried_on) carry_value(update);
  }

 private:
  void compute_again(const RankUpdate& update, UpdateTally& tally, UpdateDetail* detail, FitSums* sums) {
    step(update, 0, is_to_the_bit(update) ? &tally : nullptr);
    compare_update(update, tally, detail, sums);
  }

  // `moves`: where the update is computed again to the bit as well.
  void step(const RankUpdate& update, double shift, UpdateTally* moves = nullptr) {
    load_state(update);
    if (update.skipped) {
      std::fill_n(block_.expected.begin(), count_, 0.0);
      std::fill_n(block_.bound.begin(), count_, 0.0);
      return;
    }
    read(update.gradient, block_.gradient);
    for (std::int64_t i = 0; shift != 0 && i < count_; ++i) block_.gradient[at(i)] += shift;
    if (moves != nullptr) add_moves(update, *moves);
    switch (update.rule.family) {
      case UpdateFamily::kAdam:
        return step_adam(update);
      case UpdateFamily::kSgd:
        return step_sgd(update);
      case UpdateFamily::kLion:
        return step_lion(update);
      case UpdateFamily::kAdafactor:
        return step_adafactor(update);
    }
  }

  void read(const StepOperand& operand, Numbers& out) const {
    widen(operand.data + begin_ * size_of(operand.entry->dtype), operand.entry->dtype, count_, out.data());
  }

  void find_value(const RankUpdate& update) {
    if (update.source == BeforeStep::kCarried) return;
    read(update.before, carried_.value);
    std::fill_n(carried_.doubt.begin(), count_, 0.0);
  }

  void load_state(const RankUpdate& update) {
    if (update.state_is_zero) {
      for (Numbers* moment : {&carried_.first, &carried_.second, &carried_.largest, &carried_.size}) {
        std::fill_n(moment->begin(), count_, 0.0);
      }
    }
    if (update.state[0]) read(update.state[0], carried_.first);
    if (update.state[1]) read(update.state[1], carried_.second);
    if (update.state[2]) read(update.state[2], carried_.largest);
    if (!update.state[0]) return;
    for (std::int64_t i = 0; i < count_; ++i) carried_.size[at(i)] = std::abs(carried_.first[at(i)]);
  }

  // Returns what the arithmetic of the optimizer rounds, relative to the numbers that it adds up: k e.
  double rounding_of(const RankUpdate& update) const {
    Dtype arithmetic = update.updated;
    for (const StepOperand& state : update.state) {
      if (state && epsilon_of(state.entry->dtype) > epsilon_of(arithmetic)) arithmetic = state.entry->dtype;
    }
    const double steps = 4 * static_cast<double>(std::max<std::int64_t>(update.rolled, 1));
    return ((is_narrow(arithmetic) ? 8 : 32) + steps) * Rounding(arithmetic).half_epsilon;
  }

  // Returns how far the value is from the one that is updated, relative to it, where only the parameter is known.
  static double doubt_of_value(const RankUpdate& update) {
    return update.source == BeforeStep::kRounded ? epsilon_of(update.before.entry->dtype) / 2 : 0;
  }

  void add_moves(const RankUpdate& update, UpdateTally& tally) {
    const auto all = [&](const Numbers& numbers) {
      return std::span<const double>(numbers.data(), static_cast<std::size_t>(count_));
    };
    const StepElements elements{all(carried_.value),   all(block_.gradient), all(carried_.first), all(carried_.second),
                                all(carried_.largest), all(block_.delta),    update.clip_factor,  update.state_is_zero};
    ttrace::add_moves(update.rule, update.count, update.updated, elements, factor_, tally.moves);
  }

  void step_adam(const RankUpdate& update) {
    const UpdateRule& rule = update.rule;
    const double sign = rule.maximize ? -1 : 1, factor = sign * update.clip_factor;
    const double l2 = rule.decoupled ? 0 : rule.weight_decay, decay = rule.decay();
    const double first_share = rule.bias_correction ? 1 - std::pow(rule.beta1, update.count) : 1;
    const double second_share = rule.bias_correction ? 1 - std::pow(rule.beta2, update.count) : 1;
    const double rounding = rounding_of(update), doubt = doubt_of_value(update);
    const double units = units_of(rule);
    const Rounding of_value(update.updated);
    // fp32's smallest normal number: kernels may take what is smaller for zero.
    const double tiny = 0x1p-126, tiny_root = 0x1p-63;
    const double to_first = 1 / first_share, to_second = 1 / second_share;
    // Plain pointers, so that the loop is computed several elements at a time.
    double* __restrict first = carried_.first.data(), * __restrict second = carried_.second.data();
    double* __restrict size = carried_.size.data(), * __restrict largest = carried_.largest.data();
    const double* __restrict values = carried_.value.data(), * __restrict gradients = block_.gradient.data();
    const double* __restrict deltas = block_.delta.data();
    double* __restrict directions = block_.direction.data(), * __restrict expected = block_.expected.data();
    double* __restrict bounds = block_.bound.data();
    const double keep = rule.amsgrad ? 1 : 0;
    for (std::int64_t i = 0; i < count_; ++i) {
      const double value = values[i], magnitude = std::abs(value);
      const double given = factor * gradients[i];
      const double g = given + l2 * value;
      first[i] = rule.beta1 * first[i] + (1 - rule.beta1) * g;
      second[i] = rule.beta2 * second[i] + (1 - rule.beta2) * g * g;
      size[i] = rule.beta1 * size[i] + (1 - rule.beta1) * (std::abs(given) + l2 * magnitude);
      const double kept = keep * largest[i];
      const double scale = kept > second[i] ? kept : second[i];
      largest[i] = scale;
      const double inverse = 1 / (std::sqrt(scale * to_second) + rule.eps);
      const double direction = first[i] * to_first * inverse, moved = rule.lr * inverse;
      directions[i] = direction;
      expected[i] = -rule.lr * direction - decay * value;
      bounds[i] = units * of_value.half_ulp(magnitude * (1 + doubt) + std::abs(deltas[i])) +
                  rounding * (moved * size[i] * to_first + std::abs(expected[i])) +
                  rule.correction_rounding * std::abs(expected[i]) + doubt * magnitude * (decay + 4 * moved * l2) +
                  moved * (tiny + std::abs(direction) * tiny_root);
    }
  }

  // Half units in the last place of the value, that a step may round.
  static double units_of(const UpdateRule& rule) { return rule.decay() != 0 ? 3 : 1; }

  void step_sgd(const RankUpdate& update) {
    const UpdateRule& rule = update.rule;
    const double factor = (rule.maximize ? -1 : 1) * update.clip_factor, l2 = rule.weight_decay;
    const double rounding = rounding_of(update), doubt = doubt_of_value(update);
    // The first step takes the gradient for the buffer, undamped.
    const bool first = update.state_is_zero;
    const double kept = first ? 0 : rule.momentum, added = first || rule.momentum == 0 ? 1 : 1 - rule.dampening;
    const double ahead = rule.nesterov ? 1 : 0, behind = rule.nesterov ? rule.momentum : 1;
    const bool has_state = rule.has_state();
    const Rounding of_value(update.updated);
    for (std::int64_t j = 0; j < count_; ++j) {
      const std::size_t i = at(j);
      const double value = carried_.value[i], magnitude = std::abs(value);
      const double given = factor * block_.gradient[i];
      const double g = given + l2 * value, g_size = std::abs(given) + l2 * magnitude;
      double direction = g, size = g_size;
      if (has_state) {
        carried_.first[i] = kept * carried_.first[i] + added * g;
        carried_.size[i] = kept * carried_.size[i] + std::abs(added) * g_size;
        direction = ahead * g + behind * carried_.first[i];
        size = ahead * g_size + behind * carried_.size[i];
      }
      const double expected = -rule.lr * direction;
      block_.direction[i] = direction;
      block_.expected[i] = expected;
      block_.bound[i] = of_value.half_ulp(magnitude * (1 + doubt) + std::abs(block_.delta[i])) +
                        rounding * rule.lr * size + 4 * doubt * magnitude * rule.lr * l2 + rule.lr * 0x1p-126;
    }
  }

  void step_lion(const RankUpdate& update) {
    const UpdateRule& rule = update.rule;
    const double factor = (rule.maximize ? -1 : 1) * update.clip_factor;
    const double l2 = rule.decoupled ? 0 : rule.weight_decay, decay = rule.decay();
    const double rounding = rounding_of(update), doubt = doubt_of_value(update), units = units_of(rule);
    const Rounding of_value(update.updated);
    for (std::int64_t j = 0; j < count_; ++j) {
      const std::size_t i = at(j);
      const double value = carried_.value[i], magnitude = std::abs(value);
      const double given = factor * block_.gradient[i];
      const double g = given + l2 * value, g_size = std::abs(given) + l2 * magnitude * (1 + doubt);
      const double signed_by = rule.beta1 * carried_.first[i] + (1 - rule.beta1) * g;
      const double size = rule.beta1 * carried_.size[i] + (1 - rule.beta1) * g_size;
      const bool is_open = std::abs(signed_by) <= rounding * size && size > 0;
      carried_.first[i] = rule.beta2 * carried_.first[i] + (1 - rule.beta2) * g;
      carried_.size[i] = rule.beta2 * carried_.size[i] + (1 - rule.beta2) * g_size;
      const double direction = signed_by > 0 ? 1 : signed_by < 0 ? -1 : 0;
      block_.direction[i] = direction;
      block_.expected[i] = -rule.lr * direction - decay * value;
      block_.bound[i] = units * of_value.half_ulp(magnitude * (1 + doubt) + std::abs(block_.delta[i])) +
                        rounding * std::abs(block_.expected[i]) + doubt * magnitude * decay +
                        (is_open ? 2 * rule.lr : 0);
    }
  }

  void step_adafactor(const RankUpdate& update) {
    const UpdateRule& rule = update.rule;
    const WholeTensor& whole = *whole_;
    const double factor = (rule.maximize ? -1 : 1) * update.clip_factor, decay = rule.decay();
    const double rounding = rounding_of(update) + whole.rounding + rule.correction_rounding;
    const double units = units_of(rule), size_of_lr = std::abs(whole.lr);
    // fp32's smallest normal number, and room for the product of a gradient and one of two factors.
    const double tiny = 0x1p-116;
    const Rounding of_value(update.updated);
    for (std::int64_t j = 0; j < count_; ++j) {
      const std::size_t i = at(j);
      const double value = carried_.value[i], magnitude = std::abs(value);
      const double g = factor * block_.gradient[i];
      double& second = carried_.second[i];
      if (whole.rows.empty()) {
        second = rule.beta2 * second + (1 - rule.beta2) * (g * g + rule.eps);
      } else {
        second = whole.second_moment(begin_ + j);
      }
      const double root = std::max(std::sqrt(second), rule.floor);
      const double moved = g == 0 ? 0 : whole.lr * (g / root);
      carried_.first[i] = rule.beta1 * carried_.first[i] + (1 - rule.beta1) * moved;
      carried_.size[i] = rule.beta1 * carried_.size[i] + (1 - rule.beta1) * std::abs(moved);
      block_.direction[i] = rule.lr == 0 ? 0 : carried_.first[i] / rule.lr;
      block_.expected[i] = -carried_.first[i] - decay * value;
      block_.bound[i] = units * of_value.half_ulp(magnitude + std::abs(block_.delta[i])) +
                        rounding * (carried_.size[i] + std::abs(decay) * magnitude) + size_of_lr * tiny / root;
    }
  }

  // True where each error is below `limit` bounds; false where one is not, or is no number.
  bool all_below(double limit) const {
    const double* __restrict expected = block_.expected.data(), * __restrict deltas = block_.delta.data();
    const double* __restrict bounds = block_.bound.data();
    std::int64_t others = 0;
    for (std::int64_t i = 0; i < count_; ++i) {
      others += std::abs(deltas[i] - expected[i]) < limit * bounds[i] ? 0 : 1;
    }
    return others == 0;
  }

  void compare_update(const RankUpdate& update, UpdateTally& tally, UpdateDetail* detail, FitSums* sums) {
    double worst = tally.worst.ratio;
    // Rounding to the parameter's own dtype, which is most of the bound, never exceeds half a unit.
    const bool is_narrow_value = is_half(update.updated) && update.source == BeforeStep::kRecorded;
    if (all_below(std::min(worst, is_narrow_value ? 1 : kStepMargin))) return;
    const double units = is_narrow_value ? units_of(update.rule) : 0;
    const Rounding of_value(update.updated);
    for (std::int64_t j = 0; j < count_; ++j) {
      const std::size_t i = at(j);
      const double expected = block_.expected[i], delta = block_.delta[i], bound = block_.bound[i];
      if (!std::isfinite(expected) || !std::isfinite(bound)) {
        ++tally.not_finite;
        continue;
      }
      const double error = std::abs(delta - expected);
      if (error > worst * bound || std::isnan(error)) {  // rare: the ratio is worth its division
        const double ratio = error == 0 ? 0 : bound == 0 || std::isnan(error) ? INFINITY : error / bound;
        if (ratio > worst) {
          worst = ratio;
          tally.worst = {ratio, begin_ + j, delta, expected};
        }
      }
      const double rounded = units * of_value.half_ulp(std::abs(carried_.value[i]) + std::abs(delta));
      if (error == 0 || error <= kStepMargin * bound - rounded) continue;
      ++tally.wrong;
      tally.wrong_and_zero += delta == 0;
      if (detail == nullptr) continue;
      detail->wrong[static_cast<std::size_t>(begin_ + j)] = 1;
      if (update.skipped) continue;
      const double weight = 1 / (bound * bound), u = block_.direction[i], p = carried_.value[i];
      sums->uu += weight * u * u;
      sums->up += weight * u * p;
      sums->pp += weight * p * p;
      sums->du += weight * delta * u;
      sums->dp += weight * delta * p;
      sums->dd += weight * delta * delta;
      ++sums->elements;
    }
  }

  // Where the ends of a subtraction are within a factor of 2 of each other, it rounds nothing (Sterbenz).
  static double rounded_by_subtraction(double value, double delta, const Rounding& of_delta) {
    const bool exact = std::abs(delta) <= std::abs(value) / 2 || value == 0;
    return exact ? 0 : of_delta.half_ulp(std::abs(delta));
  }

  // The parameter is what the optimizer updates, and the update what it has changed by: nothing is rounded.
  static bool is_the_value(const RankUpdate& update) {
    return update.source == BeforeStep::kRecorded && update.step->master.empty();
  }

  // True where the parameter is, in every element, what the value and its update make, rounded.
  bool all_copied(const RankUpdate& update, Dtype dtype) {
    const bool in_fp64 = update.updated == Dtype::kFloat64;
    const double* __restrict values = carried_.value.data(), * __restrict deltas = block_.delta.data();
    double* __restrict made = block_.low.data();
    for (std::int64_t i = 0; i < count_; ++i) {
      made[i] = in_fp64 ? values[i] + deltas[i] : static_cast<float>(values[i] + deltas[i]);
    }
    if (!is_the_value(update)) round(block_.low, dtype);
    const double* __restrict after = block_.after.data();
    std::int64_t others = 0;
    for (std::int64_t i = 0; i < count_; ++i) others += made[i] == after[i] ? 0 : 1;
    return others == 0;
  }

  void check_copy(const RankUpdate& update, UpdateTally& tally, UpdateDetail* detail) {
    if (!update.after || size_of(update.after.entry->dtype) == 1) return;
    const Dtype dtype = update.after.entry->dtype;
    read(update.after, block_.after);
    const Rounding of_delta(update.delta.entry->dtype), of_copy(dtype);
    bool in_doubt = false;
    tally.copied += count_;
    if (update.source != BeforeStep::kRounded && all_copied(update, dtype)) return;
    if (update.source == BeforeStep::kRounded) {
      // Half a unit was lost when the value was rounded to the parameter, and half is lost now.
      for (std::int64_t j = 0; j < count_; ++j) {
        const std::size_t i = at(j);
        const double value = carried_.value[i], made = value + block_.delta[i];
        const double room = 1.001 * (of_copy.half_ulp(std::abs(value)) +
                                     of_copy.half_ulp(std::max(std::abs(made), std::abs(block_.after[i]))));
        block_.low[i] = made - room;
        block_.high[i] = made + room;
      }
    } else {
      const bool in_fp64 = update.updated == Dtype::kFloat64;
      for (std::int64_t j = 0; j < count_; ++j) {
        const std::size_t i = at(j);
        const double made = carried_.value[i] + block_.delta[i];
        double room = carried_.doubt[i] + rounded_by_subtraction(carried_.value[i], block_.delta[i], of_delta);
        if (in_fp64 && room > 0) room += of_copy.half_ulp(std::abs(made));  // the addition above rounds as well
        block_.low[i] = in_fp64 ? made - room : static_cast<float>(made - room);
        block_.high[i] = in_fp64 ? made + room : static_cast<float>(made + room);
        in_doubt = in_doubt || room != 0;
      }
      const bool is_rounded = !is_the_value(update);
      if (is_rounded) round(block_.low, dtype);
      if (in_doubt) {
        if (is_rounded) round(block_.high, dtype);
      } else {
        std::copy_n(block_.low.begin(), count_, block_.high.begin());
      }
    }
    for (std::int64_t j = 0; j < count_; ++j) {
      const std::size_t i = at(j);
      const double after = block_.after[i];
      tally.largest_copied = std::max(tally.largest_copied, std::abs(after));
      if ((after >= block_.low[i] && after <= block_.high[i]) || std::isnan(block_.low[i])) continue;
      ++tally.wrong_copies;
      const double made = carried_.value[i] + block_.delta[i];
      const double before = carried_.value[i];
      tally.stale_copies += after == before || std::abs(after - before) <= of_copy.half_ulp(std::abs(after));
      const double ratio = std::abs(after - made) / (2 * of_copy.half_ulp(std::abs(made)));
      tally.farthest_copy = std::max(tally.farthest_copy, std::isnan(after) ? INFINITY : std::abs(after - made));
      if (!(ratio <= tally.worst_copy.ratio)) tally.worst_copy = {ratio, begin_ + j, after, made};
      if (detail != nullptr) detail->wrong_copy[static_cast<std::size_t>(begin_ + j)] = 1;
    }
  }

  void round(Numbers& numbers, Dtype dtype) {
    narrow(numbers.data(), dtype, count_, block_.bytes.data());
    widen(block_.bytes.data(), dtype, count_, numbers.data());
  }

  // The value as the next iteration finds it.
  void carry_value(const RankUpdate& update) {
    const Rounding of_delta(update.delta.entry->dtype);
    const bool in_fp64 = update.updated == Dtype::kFloat64;
    for (std::int64_t j = 0; j < count_; ++j) {
      const std::size_t i = at(j);
      const double made = carried_.value[i] + block_.delta[i];
      const double rounded = rounded_by_subtraction(carried_.value[i], block_.delta[i], of_delta);
      carried_.doubt[i] += rounded;
      if (in_fp64 && rounded > 0) carried_.doubt[i] += of_delta.half_ulp(std::abs(made));  // that of the addition
      carried_.value[i] = in_fp64 ? made : static_cast<float>(made);
      carried_.doubt[i] += std::abs(carried_.value[i] - made);  // 0 where nothing was in doubt
    }
  }

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  const std::int64_t begin_, count_;
  const double factor_;
  const WholeTensor* whole_ = nullptr;
  Block& block_;
  Carried& carried_;
};

// True where the next iteration computes from the value that this one leaves.
bool is_carried_on(const ParameterSeries& series, std::size_t iteration) {
  return iteration + 1 < series.updates.size() && series.updates[iteration + 1].source == BeforeStep::kCarried;
}

}  // namespace

bool is_to_the_bit(const RankUpdate& update) {
  const bool has_state_before = !update.rule.has_state() || update.rolled == 1;
  return is_half(update.updated) && update.rule.rounds_as_torch && update.reason.empty() && !update.skipped &&
         update.source == BeforeStep::kRecorded && has_state_before;
}

void UpdateTally::add(const UpdateTally& other) {
  wrong += other.wrong;
  wrong_and_zero += other.wrong_and_zero;
  not_finite += other.not_finite;
  if (other.worst.ratio > worst.ratio) worst = other.worst;
  copied += other.copied;
  wrong_copies += other.wrong_copies;
  stale_copies += other.stale_copies;
  if (other.worst_copy.ratio > worst_copy.ratio) worst_copy = other.worst_copy;
  farthest_copy = std::max(farthest_copy, other.farthest_copy);
  largest_copied = std::max(largest_copied, other.largest_copied);
  for (std::size_t a = 0; a < moves.size(); ++a) moves[a].add(other.moves[a]);
}

double largest_jump(const ParameterSeries& series, std::size_t jumping, double gradient_error) {
  Block block;
  Carried carried;
  const std::vector<WholeTensor> wholes = find_whole_tensors(series);
  double largest = 0;
  for (std::int64_t first = 0; first < series.elements; first += kBlock) {
    const std::int64_t count = std::min(kBlock, series.elements - first);
    BlockReplay part(first, count, 1, block, carried);
    Numbers unmoved;
    for (const double shift : {0.0, gradient_error, -gradient_error}) {
      for (std::size_t i = 0; i <= jumping; ++i) {
        if (!series.updates[i].has_value) continue;
        part.set_whole(wholes.empty() ? nullptr : &wholes[i]);
        part.expect(series.updates[i], i < jumping && is_carried_on(series, i), shift);
      }
      if (shift == 0) {
        unmoved = part.expected();
        continue;
      }
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        largest = std::max(largest, std::abs(part.expected()[i] - unmoved[i]));
      }
    }
  }
  return largest;
}

std::vector<UpdateTally> replay(const ParameterSeries& series, std::int64_t begin, std::int64_t end,
                                std::size_t detailed, UpdateDetail* detail, double factor,
                                std::span<const WholeTensor> wholes) {
  std::vector<UpdateTally> tallies(series.updates.size());
  if (detail != nullptr) {
    detail->wrong.assign(static_cast<std::size_t>(series.elements), 0);
    detail->wrong_copy.assign(static_cast<std::size_t>(series.elements), 0);
  }
  Block block;
  Carried carried;
  FitSums sums;
  std::vector<WholeTensor> own;
  if (wholes.empty()) wholes = own = find_whole_tensors(series);
  for (std::int64_t first = begin; first < end; first += kBlock) {
    BlockReplay part(first, std::min(kBlock, end - first), factor, block, carried);
    for (std::size_t i = 0; i < series.updates.size(); ++i) {
      if (!series.updates[i].has_value) continue;
      part.set_whole(wholes.empty() ? nullptr : &wholes[i]);
      const bool in_detail = detail != nullptr && i == detailed;
      part.run(series.updates[i], is_carried_on(series, i), tallies[i], in_detail ? detail : nullptr,
               in_detail ? &sums : nullptr);
    }
  }
  if (detail != nullptr) {
    const UpdateRule& rule = series.updates[detailed].rule;
    detail->fit = sums.solve(rule.family == UpdateFamily::kAdam);
  }
  return tallies;
}

}  // namespace ttrace
