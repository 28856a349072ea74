#include "step/whole_tensor.h"

#include <algorithm>
#include <cmath>

#include "numeric/convert.h"
#include "numeric/shape.h"
#include "step/rounding.h"

namespace ttrace {
namespace {

constexpr std::int64_t kWidened = 2048;  // elements, in one go

using Numbers = std::vector<double>;

bool is_computed(const RankUpdate& update) {
  return update.has_value && update.reason.empty() && !update.skipped && update.rule.family == UpdateFamily::kAdafactor;
}

// Returns what a sum of squares rounds, in units of half the machine epsilon. Roundings that are independent of each
// other add up like the root of their number. XLA's kernels on CPUs stay below 5 up to 33 million terms; PyTorch's, whose
// vector lanes become sums of many millions, round down alike: 0.8 times the root, 310 of a million, 22,000 of 17.
double sum_rounding(const UpdateRule& rule, std::int64_t terms) {
  const auto count = static_cast<double>(terms);
  return 2 * std::sqrt(count) + (rule.rounds_as_torch ? count / 256 : 0);
}

// Sums of one update over the elements of a tensor, and what becomes of them.
struct Sums {
  Numbers rows, columns;                // of s, by what they are of
  Numbers rows_before, columns_before;  // of a recorded v
  double update_square = 0, value_square = 0;
};

class WholeTensors {
 public:
  explicit WholeTensors(const ParameterSeries& series)
      : series_(series), sums_(series.updates.size()), found_(series.updates.size()) {}

  std::vector<WholeTensor> find() {
    for (std::size_t t = 0; t < found_.size(); ++t) {
      if (is_computed(series_.updates[t])) prepare(t);
    }
    visit([&](std::size_t t, std::int64_t begin, std::int64_t count) { add_squares(t, begin, count); });
    for (std::size_t t = 0; t < found_.size(); ++t) {
      if (is_computed(series_.updates[t]) && is_factored(t)) find_factors(t);
    }
    visit([&](std::size_t t, std::int64_t begin, std::int64_t count) { add_updates(t, begin, count); });
    for (std::size_t t = 0; t < found_.size(); ++t) {
      if (is_computed(series_.updates[t])) find_lr(t);
    }
    return std::move(found_);
  }

 private:
  bool is_factored(std::size_t t) const { return !sums_[t].rows.empty(); }

  void prepare(std::size_t t) {
    const RankUpdate& update = series_.updates[t];
    if (!update.rule.is_factored()) return;
    const Shape& shape = update.delta.entry->shape;
    const Shape strides = row_major_strides(shape);
    const auto by_row = static_cast<std::size_t>(update.rule.row_mean_dim);
    const auto by_column = static_cast<std::size_t>(update.rule.column_mean_dim);
    found_[t].index = {shape[by_row], strides[by_row], shape[by_column], strides[by_column]};
    Sums& sums = sums_[t];
    for (Numbers* rows : {&sums.rows, &sums.rows_before}) {
      rows->assign(static_cast<std::size_t>(series_.elements / shape[by_row]), 0.0);
    }
    for (Numbers* columns : {&sums.columns, &sums.columns_before}) {
      columns->assign(static_cast<std::size_t>(series_.elements / shape[by_column]), 0.0);
    }
  }

  // Calls `visit` for each block of elements and each update that is computed, with `gradient_` (clipped), `state_` and
  // `value_` of the block.
  template <class Visit>
  void visit(Visit visit) {
    for (std::int64_t begin = 0; begin < series_.elements; begin += kWidened) {
      const std::int64_t count = std::min(kWidened, series_.elements - begin);
      for (std::size_t t = 0; t < series_.updates.size(); ++t) {
        const RankUpdate& update = series_.updates[t];
        if (!update.has_value) continue;
        if (update.source != BeforeStep::kCarried) read(update.before, begin, count, value_);
        if (is_computed(update)) {
          read(update.gradient, begin, count, gradient_);
          read(update.state[1], begin, count, state_);
          for (double& one : gradient_) one *= update.clip_factor;
          visit(t, begin, count);
        }
        read(update.delta, begin, count, delta_);
        for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) value_[i] += delta_[i];
      }
    }
  }

  static void read(const StepOperand& operand, std::int64_t begin, std::int64_t count, Numbers& out) {
    if (!operand) return;
    widen(operand.data + begin * size_of(operand.entry->dtype), operand.entry->dtype, count, out.data());
  }

  void add_squares(std::size_t t, std::int64_t begin, std::int64_t count) {
    const RankUpdate& update = series_.updates[t];
    Sums& sums = sums_[t];
    for (std::int64_t j = 0; j < count; ++j) {
      const auto i = static_cast<std::size_t>(j);
      sums.value_square += value_[i] * value_[i];
      if (!is_factored(t)) continue;
      const auto row = static_cast<std::size_t>(found_[t].index.row_of(begin + j));
      const auto column = static_cast<std::size_t>(found_[t].index.column_of(begin + j));
      const double square = gradient_[i] * gradient_[i] + update.rule.eps;
      sums.rows[row] += square;
      sums.columns[column] += square;
      if (!update.state[1]) continue;
      sums.rows_before[row] += state_[i];
      sums.columns_before[column] += state_[i];
    }
  }

  // Rolls R and C on, and divides R by its mean.
  void find_factors(std::size_t t) {
    const RankUpdate& update = series_.updates[t];
    const FactoredIndex& index = found_[t].index;
    const double beta2 = update.rule.beta2;
    const auto roll = [&](Numbers& moment, const Numbers& before, const Numbers& sum, std::int64_t terms) {
      const auto share = 1 / static_cast<double>(terms);
      if (update.state_is_zero) moment.assign(sum.size(), 0.0);
      if (update.state[1]) {
        moment = before;
        for (double& one : moment) one *= share;
      }
      for (std::size_t i = 0; i < sum.size(); ++i) moment[i] = beta2 * moment[i] + (1 - beta2) * sum[i] * share;
    };
    roll(rows_, sums_[t].rows_before, sums_[t].rows, index.averaged_by_row);
    roll(columns_, sums_[t].columns_before, sums_[t].columns, index.averaged_by_column);
    found_[t].rows = rows_;
    found_[t].columns = columns_;
    divide_by_mean(found_[t].rows, index, update.rule.floor);
  }

  // R has no dimension that it is averaged over; its mean is that over the other, of each place in what is left.
  static void divide_by_mean(Numbers& rows, const FactoredIndex& index, double floor) {
    const bool is_before = index.stride_by_column > index.stride_by_row;
    const std::int64_t size = index.averaged_by_column;
    const std::int64_t stride = is_before ? index.stride_by_column / index.averaged_by_row : index.stride_by_column;
    const FactoredIndex of_rows{size, stride, 1, 1};
    Numbers means(rows.size() / static_cast<std::size_t>(size), 0.0);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      means[static_cast<std::size_t>(of_rows.row_of(static_cast<std::int64_t>(i)))] +=
          rows[i] / static_cast<double>(size);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] /= std::max(means[static_cast<std::size_t>(of_rows.row_of(static_cast<std::int64_t>(i)))], floor);
    }
  }

  void add_updates(std::size_t t, std::int64_t begin, std::int64_t count) {
    const RankUpdate& update = series_.updates[t];
    const UpdateRule& rule = update.rule;
    const WholeTensor& whole = found_[t];
    for (std::int64_t j = 0; j < count; ++j) {
      const auto i = static_cast<std::size_t>(j);
      if (is_factored(t)) {
        second_[i] = whole.second_moment(begin + j);
      } else {
        const double before = update.state_is_zero ? 0 : update.state[1] ? state_[i] : second_[i];
        second_[i] = rule.beta2 * before + (1 - rule.beta2) * (gradient_[i] * gradient_[i] + rule.eps);
      }
      const double scaled = gradient_[i] / std::max(std::sqrt(second_[i]), rule.floor);
      sums_[t].update_square += gradient_[i] == 0 ? 0 : scaled * scaled;
    }
  }

  void find_lr(std::size_t t) {
    const RankUpdate& update = series_.updates[t];
    const UpdateRule& rule = update.rule;
    WholeTensor& whole = found_[t];
    const auto rms = [&](double sum) { return std::sqrt(sum / static_cast<double>(series_.elements)); };
    whole.lr = rule.caps_lr ? std::min(rule.lr, 1 / std::sqrt(update.count)) : rule.lr;
    double rounding = 0;
    if (is_factored(t)) {
      const double of_rows = sum_rounding(rule, whole.index.averaged_by_row);
      const double of_columns = sum_rounding(rule, whole.index.averaged_by_column);
      rounding += (update.state[1] ? 2 : 1) * (of_rows + of_columns);
    }
    if (rule.threshold > 0) {
      whole.lr /= std::max(1.0, rms(sums_[t].update_square) / rule.threshold);
      rounding = 2 * rounding + sum_rounding(rule, series_.elements) / 2;  // the clipping is of the same factors
    }
    if (rule.least_scale > 0) {
      whole.lr *= std::max(rule.least_scale, rms(sums_[t].value_square));
      rounding += sum_rounding(rule, series_.elements) / 2;
    }
    whole.rounding = rounding * Rounding(update.updated).half_epsilon;
  }

  const ParameterSeries& series_;
  std::vector<Sums> sums_;          // by update
  std::vector<WholeTensor> found_;  // by update
  Numbers rows_, columns_;          // R and C, from update to update
  Numbers gradient_ = Numbers(kWidened), state_ = Numbers(kWidened), value_ = Numbers(kWidened),
          delta_ = Numbers(kWidened);
  Numbers second_ = Numbers(kWidened);  // v of a block, from update to update
};

}  // namespace

std::vector<WholeTensor> find_whole_tensors(const ParameterSeries& series) {
  if (series.elements == 0 || std::none_of(series.updates.begin(), series.updates.end(), is_computed)) return {};
  return WholeTensors(series).find();
}

}  // namespace ttrace
