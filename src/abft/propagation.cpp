#include "abft/propagation.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

namespace ttrace::abft {
namespace {

// The rows and columns of the extreme elements that were added so far.
struct Area {
  bool one_row = true, one_col = true;

  void add(const Extremes& seen, std::int64_t row, std::int64_t col) {
    one_row = one_row && row == seen.row;
    one_col = one_col && col == seen.col;
  }
  Pattern pattern() const {
    if (one_row) return one_col ? Pattern::k0D : Pattern::k1R;
    return one_col ? Pattern::k1C : Pattern::k2D;
  }
};

std::string_view describe(Pattern pattern) {
  switch (pattern) {
    case Pattern::kNone:
      break;
    case Pattern::k0D:
      return "one element (0D)";
    case Pattern::k1R:
      return "one row (1R)";
    case Pattern::k1C:
      return "one column (1C)";
    case Pattern::k2D:
      return "several rows and columns (2D)";
  }
  return "no element";
}

// Returns the strike that makes this pattern in `seen`, whose operands were recorded without extreme values.
Strike from_pattern(AttentionMatrix seen, Pattern pattern) {
  using enum AttentionMatrix;
  const auto here = Strike{Strike::Where::kHere, seen, seen};
  const auto in_flight = [&](AttentionMatrix matrix) { return Strike{Strike::Where::kInFlight, matrix, seen}; };
  if (pattern == Pattern::k0D) return here;
  if (seen == kScores && pattern == Pattern::k1R) return in_flight(kQuery);
  if (seen == kScores && pattern == Pattern::k1C) return in_flight(kKey);
  if (seen == kProbabilities && pattern == Pattern::k1R) return in_flight(kScores);
  if (seen == kContext && pattern == Pattern::k1R) return in_flight(kProbabilities);
  if (seen == kContext && pattern == Pattern::k1C) return in_flight(kValue);
  return {Strike::Where::kUnknown, seen, seen};
}

}  // namespace

Extremes extremes_in(const MatrixView& matrix) {
  Extremes found;
  Area area;
  std::vector<double> values(static_cast<std::size_t>(matrix.cols));
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    read(matrix, row, 1, 0, matrix.cols, values.data());
    for (std::int64_t col = 0; col < matrix.cols; ++col) {
      const double value = values[static_cast<std::size_t>(col)];
      if (std::fabs(value) <= kNearInfinity) continue;
      if (found.count() == 0) {
        found.row = row;
        found.col = col;
      }
      ++(std::isnan(value) ? found.nan : std::isinf(value) ? found.infinite : found.near_infinite);
      area.add(found, row, col);
    }
  }
  if (found.count() > 0) found.pattern = area.pattern();
  return found;
}

std::string to_string(const Extremes& extremes) {
  std::string text;
  const auto add = [&](std::int64_t count, std::string_view name) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : " and ", count, name);
  };
  add(extremes.infinite, "INF");
  add(extremes.nan, "NaN");
  add(extremes.near_infinite, "near-INF");
  return fmt::format("{} in {}", text.empty() ? "nothing" : text, describe(extremes.pattern));
}

Strike find_strike(const HeadExtremes& extremes) {
  const auto at = [&](AttentionMatrix matrix) -> const Extremes& { return extremes[static_cast<std::size_t>(matrix)]; };
  using enum AttentionMatrix;
  Strike strike;
  int inputs = 0;
  for (const AttentionMatrix matrix : {kValue, kKey, kQuery}) {
    if (at(matrix).count() == 0) continue;
    strike = {at(matrix).pattern == Pattern::k0D ? Strike::Where::kHere : Strike::Where::kUnknown, matrix, matrix};
    ++inputs;
  }
  if (inputs > 1) strike.where = Strike::Where::kBefore;
  if (inputs > 0) return strike;
  for (const AttentionMatrix matrix : {kScores, kProbabilities, kContext}) {
    if (at(matrix).count() > 0) return from_pattern(matrix, at(matrix).pattern);
  }
  return strike;
}

}  // namespace ttrace::abft
