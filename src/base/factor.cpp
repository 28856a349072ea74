#include "base/factor.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/finding.h"

namespace ttrace {

std::optional<std::int64_t> factor_number(std::string_view word) {
  constexpr std::size_t kMostDigits = 9;
  const bool digits = std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (word.empty() || word.size() > kMostDigits || !digits || word[0] == '0') return std::nullopt;
  return std::stoll(std::string(word));
}

double nearest_whole_factor(double factor) {
  const double whole = std::round(std::max(factor, 1 / factor));
  return factor > 1 ? whole : 1 / whole;
}

double whole_multiple_of(const Finding& finding) {
  if (!finding.difference || !finding.allowed) return 1;
  constexpr double kPrecisionOfSums = 1e-3;  // of a difference: they say to three digits what a factor leaves over
  const double bound = std::max(kPrecisionOfSums, *finding.allowed);
  const double factor = finding.difference->uniform_factor();
  if (!(finding.difference->uniform_factor_residual() <= bound) || !(factor > 0)) return 1;
  const double nearest = nearest_whole_factor(factor);
  if (bound * std::max(nearest, 1 / nearest) >= 0.5) return 1;  // the next whole factor would be as near
  return std::fabs(factor - nearest) <= bound * nearest ? nearest : 1;
}

bool is_unknown_scale(std::string_view key, std::string_view json) {
  return key == "loss_scale" && json == R"("unknown")";  // as in src/python/ttrace_torch/adapters/averaging.py
}

}  // namespace ttrace
