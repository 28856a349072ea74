#include "base/factor.h"

#include <algorithm>
#include <cmath>
#include <string>

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

bool is_unknown_scale(std::string_view key, std::string_view json) {
  return key == "loss_scale" && json == R"("unknown")";  // as in src/python/ttrace_torch/adapters/averaging.py
}

}  // namespace ttrace
