// Tests whether the candidate has a function of the reference's values, or the reference one of the candidate's: an
// activation, a softmax, a logarithm that is applied once more than there, or once less.
//
// Nothing is fitted. But where values vary little, every function is a line; so one is named only where it leaves little of
// what the nearest line leaves.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "diagnose/hypothesis.h"

namespace ttrace {
namespace {

using FunctionRow = std::span<const double>;  // along the last dimension

void softmax(FunctionRow from, std::span<double> to) {
  const double largest = *std::max_element(from.begin(), from.end());
  std::transform(from.begin(), from.end(), to.begin(), [&](double x) { return std::exp(x - largest); });
  const double sum = std::accumulate(to.begin(), to.end(), 0.0);
  for (double& share : to) share /= sum;
}

void log_softmax(FunctionRow from, std::span<double> to) {
  const double largest = *std::max_element(from.begin(), from.end());
  double sum = 0;
  for (const double x : from) sum += std::exp(x - largest);
  const double log_sum = largest + std::log(sum);
  std::transform(from.begin(), from.end(), to.begin(), [&](double x) { return x - log_sum; });
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double tanh_of(double x) { return std::tanh(x); }
double relu(double x) { return std::max(x, 0.0); }
double gelu(double x) { return x * std::erfc(-x / std::numbers::sqrt2) / 2; }
double gelu_by_tanh(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double silu(double x) { return x * sigmoid(x); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double exponential(double x) { return std::exp(x); }

template <double (*function)(double)>
void of_each(FunctionRow from, std::span<double> to) {
  std::transform(from.begin(), from.end(), to.begin(), function);
}

struct NamedFunction {
  std::string_view name, inverse;  // the second: empty where programs have none
  void (*apply)(FunctionRow from, std::span<double> to);
  bool is_of_rows = false;
};

constexpr auto kFunctions = std::to_array<NamedFunction>({
    {"softmax", "", softmax, true},
    {"log-softmax", "", log_softmax, true},
    {"sigmoid", "", of_each<sigmoid>},
    {"tanh", "", of_each<tanh_of>},
    {"ReLU", "", of_each<relu>},
    {"GELU", "", of_each<gelu>},
    {"GELU (by tanh)", "", of_each<gelu_by_tanh>},
    {"SiLU", "", of_each<silu>},
    {"softplus", "", of_each<softplus>},
    {"exponential", "logarithm", of_each<exponential>},
});

// What a prediction of `to` leaves: ||to - prediction||^2, and ||prediction||^2.
struct LeftByFunction {
  double square = 0, of_prediction = 0;

  double residual() const { return std::sqrt(square / of_prediction); }
};

// Returns what `function` of `from` leaves of `to`; nothing where that is more than the share `most`, which the first rows
// mostly tell.
std::optional<LeftByFunction> left_by(const NamedFunction& function, const Values& from, const Values& to,
                                      std::size_t width, double most) {
  if (!(most < 1)) return std::nullopt;
  const double limit = most / (1 - most) * norm_of(to);  // of ||prediction|| <= ||to|| / (1 - most)
  Values row(width);
  LeftByFunction left;
  for (std::size_t start = 0; start < from.size(); start += width) {
    function.apply(FunctionRow(from).subspan(start, width), row);
    for (std::size_t j = 0; j < width; ++j) {
      const double apart = to[start + j] - row[j];
      left.square += apart * apart;
      left.of_prediction += row[j] * row[j];
    }
    if (!(left.square <= limit * limit)) return std::nullopt;
  }
  if (!(left.residual() <= most)) return std::nullopt;
  return left;
}

// Returns ||y - (a x + b)||^2 of the nearest line.
double left_by_line(const Values& x, const Values& y) {
  const auto n = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xx = 0, xy = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return xx > 0 ? std::max(0.0, yy - xy * xy / xx) : yy;
}

struct FunctionMatch {
  const NamedFunction* function = nullptr;
  double residual = 0;
};

// Returns the functions of `from` that `to` is: the nearest first, and those that rounding does not tell from it.
std::vector<FunctionMatch> functions_between(const Values& from, const Values& to, const Suspect& suspect) {
  const auto width = static_cast<std::size_t>(suspect.reference.shape.back());
  const double most = std::min(suspect.bound, suspect.error * kLargestShareLeft);
  std::vector<FunctionMatch> matches;
  for (const NamedFunction& function : kFunctions) {
    if (function.is_of_rows && width < 2) continue;
    const std::optional<LeftByFunction> left = left_by(function, from, to, width, most);
    if (!left || left->square > kLargestShareLeft * kLargestShareLeft * left_by_line(from, to)) continue;
    matches.push_back({&function, left->residual()});
  }
  std::stable_sort(matches.begin(), matches.end(),
                   [](const FunctionMatch& a, const FunctionMatch& b) { return a.residual < b.residual; });
  const double rounding = epsilon_of(suspect.candidate.dtype);
  std::erase_if(matches, [&](const FunctionMatch& match) {
    return match.residual * kLargestShareLeft > std::max(matches.front().residual, rounding);
  });
  return matches;
}

// True where each row is of shares, which add up to one.
bool are_shares(const Values& values, std::size_t width, double bound) {
  for (std::size_t start = 0; start < values.size(); start += width) {
    const FunctionRow row = FunctionRow(values).subspan(start, width);
    if (std::ranges::any_of(row, [](double value) { return value < 0; })) return false;
    if (std::abs(std::accumulate(row.begin(), row.end(), 0.0) - 1) > bound) return false;
  }
  return true;
}

std::string describe_functions(const std::vector<FunctionMatch>& matches) {
  std::string words;
  for (const FunctionMatch& match : matches) {
    words += fmt::format("{}the {}{}", words.empty() ? "" : " (or, which is the same here, ", match.function->name,
                         match.function->is_of_rows ? " over the last dimension" : "");
  }
  return words + std::string(matches.size() - 1, ')');
}

std::string describe_count(const NamedFunction& function, bool is_more) {
  const std::string_view than = is_more ? "more" : "less", other = is_more ? "less" : "more";
  const std::string inverse =
      function.inverse.empty() ? "" : fmt::format(", or the {} once {}", function.inverse, other);
  return fmt::format("the {} is applied once {} than there{}", function.name, than, inverse);
}

}  // namespace

std::optional<Diagnosis> function_of_reference(const Suspect& suspect) {
  const Kind kind = suspect.reference.id.kind;
  if ((kind != Kind::kInput && kind != Kind::kOutput) || suspect.reference.shape.empty()) return std::nullopt;
  const Values &right = suspect.reference_values, &wrong = suspect.candidate_values;
  if (const auto more = functions_between(right, wrong, suspect); !more.empty()) {
    const NamedFunction& function = *more[0].function;
    const auto width = static_cast<std::size_t>(suspect.reference.shape.back());
    const bool is_twice = function.apply == softmax && are_shares(right, width, std::max(suspect.bound, 1e-6));
    return suspect.explained_by(Cause::kOtherFunction, more[0].residual,
                                fmt::format("it is {} of the reference's value{}", describe_functions(more),
                                            is_twice ? ", which is one already: the softmax is applied twice"
                                                     : fmt::format(": {}", describe_count(function, true))));
  }
  if (const auto less = functions_between(wrong, right, suspect); !less.empty()) {
    return suspect.explained_by(Cause::kOtherFunction, less[0].residual,
                                fmt::format("the reference's value is {} of it: {}", describe_functions(less),
                                            describe_count(*less[0].function, false)));
  }
  return std::nullopt;
}

}  // namespace ttrace
