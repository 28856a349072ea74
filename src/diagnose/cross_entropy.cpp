#include "diagnose/cross_entropy.h"

#include <algorithm>
#include <cmath>

namespace ttrace {
namespace {

constexpr std::size_t kFewestClasses = 4;  // of fewer, a label and the other classes tell the same

// A row of scores, at a temperature.
struct RowOfScores {
  Values shares;  // softmax
  double log_sum = 0;
};

RowOfScores row_of_scores(const Values& scores, std::size_t row, std::size_t classes, double temperature) {
  const auto begin = scores.begin() + static_cast<std::ptrdiff_t>(row * classes);
  RowOfScores result{{begin, begin + static_cast<std::ptrdiff_t>(classes)}, 0};
  const double largest = *std::max_element(result.shares.begin(), result.shares.end()) / temperature;
  double sum = 0;
  for (double& share : result.shares) {
    share = std::exp(share / temperature - largest);
    sum += share;
  }
  for (double& share : result.shares) share /= sum;
  result.log_sum = largest + std::log(sum);
  return result;
}

// The gradient of a row of weight 1, but for the temperature in front.
Values unit_gradient(const RowOfScores& row, std::size_t label, double smoothing, double z_loss) {
  Values gradient = row.shares;
  const auto classes = static_cast<double>(gradient.size());
  for (double& value : gradient) value = value * (1 + 2 * z_loss * row.log_sum) - smoothing / classes;
  gradient[label] -= 1 - smoothing;
  return gradient;
}

// What is read of a gradient.
class Reader {
 public:
  Reader(const Values& scores, const Values& gradient, std::size_t classes)
      : scores_(scores), gradient_(gradient), classes_(classes) {
    for (std::size_t row = 0; row < gradient.size() / classes; ++row) {
      const auto at = [&](std::size_t j) { return std::abs(gradient_[row * classes_ + j]); };
      std::size_t label = 0;
      for (std::size_t j = 1; j < classes_; ++j) label = at(j) > at(label) ? j : label;
      labels_.push_back(at(label) > 0 ? std::optional(label) : std::nullopt);
    }
  }

  // Sum, over rows that count, of the slope of log |gradient| over the score: one over the temperature.
  double fit_temperature() const {
    double dot = 0, square = 0;
    for_each_row([&](std::size_t row, std::size_t label) {
      Values x, y;
      const double sign = gradient_[row * classes_ + label] < 0 ? 1 : -1;
      for (std::size_t j = 0; j < classes_; ++j) {
        const double value = sign * gradient_[row * classes_ + j];
        if (j == label || !(value > 0)) continue;
        x.push_back(scores_[row * classes_ + j]);
        y.push_back(std::log(value));
      }
      const double mean_x = mean_of(x), mean_y = mean_of(y);
      for (std::size_t i = 0; i < x.size(); ++i) {
        dot += (x[i] - mean_x) * (y[i] - mean_y);
        square += (x[i] - mean_x) * (x[i] - mean_x);
      }
    });
    return dot > 0 ? square / dot : 1;
  }

  // The smoothing and the z-loss that all rows have together, at a temperature; of those that are not asked for, none.
  CrossEntropy fit(double temperature, bool is_smoothed, bool has_z_loss) const {
    CrossEntropy entropy{classes_, temperature, 0, 0, {}};
    double smoothed = 0, weights = 0, dot = 0, square = 0;
    for_each_row([&](std::size_t row, std::size_t label) {
      const RowOfScores of = row_of_scores(scores_, row, classes_, temperature);
      const Line line = fit_others(of, row, label, is_smoothed);
      const double at_label = gradient_[row * classes_ + label];
      const double below = -line.constant;  // w / T * e / V
      const double weight = line.slope * of.shares[label] - below - at_label + below * static_cast<double>(classes_);
      smoothed += below * static_cast<double>(classes_) * weight;
      weights += weight * weight;
      dot += (line.slope - weight) * 2 * of.log_sum * weight;
      square += 4 * of.log_sum * of.log_sum * weight * weight;
    });
    if (is_smoothed && weights > 0) entropy.smoothing = smoothed / weights;
    if (has_z_loss && square > 0) entropy.z_loss = dot / square;
    add_rows(entropy);
    return entropy;
  }

 private:
  struct Line {
    double slope = 0, constant = 0;
  };

  static double mean_of(const Values& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return values.empty() ? 0 : sum / static_cast<double>(values.size());
  }

  template <typename Visit>
  void for_each_row(const Visit& visit) const {
    for (std::size_t row = 0; row < labels_.size(); ++row) {
      if (labels_[row]) visit(row, *labels_[row]);
    }
  }

  // Fits the gradient of the other classes than the label by their shares.
  Line fit_others(const RowOfScores& of, std::size_t row, std::size_t label, bool has_constant) const {
    double x = 0, y = 0, xx = 0, xy = 0, n = 0;
    for (std::size_t j = 0; j < classes_; ++j) {
      if (j == label) continue;
      const double share = of.shares[j], value = gradient_[row * classes_ + j];
      x += share;
      y += value;
      xx += share * share;
      xy += share * value;
      n += 1;
    }
    if (!has_constant) return {xx > 0 ? xy / xx : 0, 0};
    const double spread = xx - x * x / n;
    if (!(spread > 0)) return {};
    const double slope = (xy - x * y / n) / spread;
    return {slope, (y - slope * x) / n};
  }

  void add_rows(CrossEntropy& entropy) const {
    for (std::size_t row = 0; row < labels_.size(); ++row) {
      entropy.rows.emplace_back();
      if (!labels_[row]) continue;
      const RowOfScores of = row_of_scores(scores_, row, classes_, entropy.temperature);
      const Values unit = unit_gradient(of, *labels_[row], entropy.smoothing, entropy.z_loss);
      double dot = 0;
      for (std::size_t j = 0; j < classes_; ++j) dot += unit[j] * gradient_[row * classes_ + j];
      const double square = dot_of(unit, unit);
      const double weight = square > 0 ? entropy.temperature * dot / square : 0;
      entropy.rows.back() = RowOfEntropy{*labels_[row], weight};
    }
  }

  const Values &scores_, &gradient_;
  const std::size_t classes_;
  std::vector<std::optional<std::size_t>> labels_;  // by row; none: its gradient is zero
};

}  // namespace

std::int64_t CrossEntropy::counted() const {
  return std::count_if(rows.begin(), rows.end(), [](const auto& row) { return row.has_value(); });
}

Values CrossEntropy::gradient_of(const Values& scores) const {
  Values gradient(scores.size());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (!rows[row]) continue;
    const Values unit =
        unit_gradient(row_of_scores(scores, row, classes, temperature), rows[row]->label, smoothing, z_loss);
    for (std::size_t j = 0; j < classes; ++j) gradient[row * classes + j] = rows[row]->weight / temperature * unit[j];
  }
  return gradient;
}

double CrossEntropy::value_of(const Values& scores) const {
  double value = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (!rows[row]) continue;
    const double log_sum = row_of_scores(scores, row, classes, temperature).log_sum;
    const auto log_share = [&](std::size_t j) { return scores[row * classes + j] / temperature - log_sum; };
    double of_all = 0;
    for (std::size_t j = 0; j < classes; ++j) of_all += log_share(j);
    value += rows[row]->weight * (z_loss * log_sum * log_sum - (1 - smoothing) * log_share(rows[row]->label) -
                                  smoothing / static_cast<double>(classes) * of_all);
  }
  return value;
}

std::optional<CrossEntropy> read_cross_entropy(const Values& scores, const Values& gradient, std::size_t classes,
                                               double bound) {
  if (classes < kFewestClasses || gradient.empty() || scores.size() != gradient.size()) return std::nullopt;
  const Reader reader(scores, gradient, classes);
  const double temperature = reader.fit_temperature();
  for (const double each : {1.0, temperature}) {
    for (const bool is_smoothed : {false, true}) {
      for (const bool has_z_loss : {false, true}) {
        CrossEntropy entropy = reader.fit(each, is_smoothed, has_z_loss);
        if (entropy.counted() == 0) return std::nullopt;
        if (relative_distance(entropy.gradient_of(scores), gradient) <= bound) return entropy;
      }
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
