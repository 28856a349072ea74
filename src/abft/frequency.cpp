#include "ttrace/abft/frequency.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ttrace::abft {
namespace {

double expected_errors(const ProtectedSection& section, const ErrorTypes& rates) {
  double errors = 0;
  for (const Operation& operation : section.operations) {
    for (const double rate : rates) errors += rate * operation.flops;
  }
  return errors;
}

// 1 - e^-a (1 + a): more than one error. For small a the two terms cancel; then its series.
double more_than_one(double a) { return a < 1e-4 ? a * a * (0.5 - a / 3) : -std::expm1(-a) - a * std::exp(-a); }

// sum over operations and types of R phi: one error that makes the model non-trainable unless it is corrected. R is
// P(1 of this type) times P(0) of all others, that is rate * flops * R_free.
double one_harmful(const ProtectedSection& section, const ErrorTypes& rates) {
  double sum = 0;
  for (const Operation& operation : section.operations) {
    for (int type = 0; type < kErrorTypes; ++type) {
      const auto at = static_cast<std::size_t>(type);
      sum += rates[at] * operation.flops * operation.vulnerability[at];
    }
  }
  return sum * std::exp(-expected_errors(section, rates));
}

// 1 - prod (1 - loss), without losing the digits of losses near 1e-12.
double total_loss(std::span<const ProtectedSection> sections, const ErrorTypes& rates,
                  std::span<const double> frequencies) {
  double log_coverage = 0;
  for (std::size_t i = 0; i < sections.size(); ++i)
    log_coverage += std::log1p(-loss(sections[i], rates, frequencies[i]));
  return -std::expm1(log_coverage);
}

// The frequency of section `at` that leaves a total loss of `target`, between 0 and 1.
double frequency_for(std::span<const ProtectedSection> sections, const ErrorTypes& rates,
                     std::span<const double> frequencies, std::size_t at, double target) {
  double others = 0;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    if (i != at) others += std::log1p(-loss(sections[i], rates, frequencies[i]));
  }
  const double allowed = -std::expm1(std::log1p(-target) - others);
  const double harmful = one_harmful(sections[at], rates);
  return harmful > 0 ? std::clamp((loss(sections[at], rates, 0) - allowed) / harmful, 0.0, 1.0) : 0;
}

}  // namespace

double error_probability(double rate, double flops, int count) {
  const double expected = rate * flops;
  return std::exp(-expected) * std::pow(expected, count) / std::tgamma(count + 1);
}

double loss(const ProtectedSection& section, const ErrorTypes& rates, double frequency) {
  return more_than_one(expected_errors(section, rates)) + (1 - frequency) * one_harmful(section, rates);
}

double efficiency(const ProtectedSection& section, const ErrorTypes& rates) {
  return one_harmful(section, rates) / section.overhead;
}

Frequencies optimise(std::span<const ProtectedSection> sections, const ErrorTypes& rates, double target) {
  Frequencies result;
  result.frequencies.resize(sections.size());
  std::vector<std::size_t> order(sections.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return efficiency(sections[a], rates) > efficiency(sections[b], rates);
  });
  for (const std::size_t at : order) {
    result.frequencies[at] = frequency_for(sections, rates, result.frequencies, at, target);
  }
  result.loss = total_loss(sections, rates, result.frequencies);
  result.reached = result.loss <= target * (1 + 1e-9);
  for (std::size_t i = 0; i < sections.size(); ++i) result.overhead += result.frequencies[i] * sections[i].overhead;
  return result;
}

}  // namespace ttrace::abft
