#include "compare/few_elements.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "merge/values.h"

namespace ttrace {
namespace {

constexpr std::size_t kFew = 16;

}  // namespace

bool has_whole_values(const LogicalTensor& tensor) {
  return !tensor.rows && !tensor.sketched && tensor.kept == nullptr;
}

std::optional<std::vector<std::size_t>> few_elements_that_differ(const TensorPair& pair, double allowed) {
  if (!has_whole_values(*pair.reference) || !has_whole_values(*pair.candidate)) return std::nullopt;
  const Values reference = values_of(*pair.reference), candidate = values_of(*pair.candidate);
  Values squares(reference.size());
  for (std::size_t i = 0; i < squares.size(); ++i) {
    squares[i] = (candidate[i] - reference[i]) * (candidate[i] - reference[i]);
  }
  std::vector<std::size_t> worst(squares.size());
  std::iota(worst.begin(), worst.end(), std::size_t{0});
  const std::size_t count = std::min(kFew, worst.size());
  std::partial_sort(
      worst.begin(), worst.begin() + static_cast<std::ptrdiff_t>(count), worst.end(),
      [&](std::size_t a, std::size_t b) { return squares[a] > squares[b] || (squares[a] == squares[b] && a < b); });
  const double most = std::pow(allowed * norm_of(reference), 2);
  const auto rest = [&] { return std::accumulate(squares.begin(), squares.end(), 0.0); };
  std::vector<std::size_t> few;
  for (std::size_t i = 0; rest() > most; ++i) {
    if (i == count) return std::nullopt;
    few.push_back(worst[i]);
    squares[worst[i]] = 0;
  }
  return few;
}

}  // namespace ttrace
