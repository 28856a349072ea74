#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "diagnose/hypothesis.h"

namespace ttrace {
namespace {

constexpr std::int64_t kMostBlocks = 64;
constexpr std::int64_t kMostComparisons = std::int64_t{1} << 30;  // of elements, where each row is held against all

// The tensor as [outer, extent, inner] around one dimension.
struct Around {
  std::int64_t outer = 1, extent = 1, inner = 1;

  Around(const Shape& shape, std::size_t dim) : extent(shape[dim]) {
    for (std::size_t d = 0; d < dim; ++d) outer *= shape[d];
    for (std::size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  }
  // Squared distance between block `a` of `x` and block `b` of `y`, each of `size` indices.
  double square_between(const Values& x, std::int64_t a, const Values& y, std::int64_t b, std::int64_t size) const {
    double sum = 0;
    for (std::int64_t o = 0; o < outer; ++o) {
      const std::int64_t from = (o * extent + a * size) * inner, other = (o * extent + b * size) * inner;
      for (std::int64_t i = 0; i < size * inner; ++i) {
        const double difference = x[static_cast<std::size_t>(from + i)] - y[static_cast<std::size_t>(other + i)];
        sum += difference * difference;
      }
    }
    return sum;
  }
};

// For each block of the candidate the block of the reference that it is nearest to.
std::vector<std::int64_t> nearest_blocks(const Suspect& suspect, const Around& around, std::int64_t blocks) {
  const std::int64_t size = around.extent / blocks;
  std::vector<std::int64_t> nearest(static_cast<std::size_t>(blocks));
  for (std::int64_t a = 0; a < blocks; ++a) {
    double least = around.square_between(suspect.found, a, suspect.expected, a, size);
    nearest[static_cast<std::size_t>(a)] = a;  // of equal blocks, its own
    for (std::int64_t b = 0; b < blocks; ++b) {
      const double square = around.square_between(suspect.found, a, suspect.expected, b, size);
      if (square >= least) continue;
      least = square;
      nearest[static_cast<std::size_t>(a)] = b;
    }
  }
  return nearest;
}

Values rearranged(const Values& values, const Around& around, const std::vector<std::int64_t>& source) {
  const std::int64_t size = around.extent / static_cast<std::int64_t>(source.size());
  Values result(values.size());
  for (std::int64_t o = 0; o < around.outer; ++o) {
    for (std::size_t block = 0; block < source.size(); ++block) {
      const std::int64_t to = (o * around.extent + static_cast<std::int64_t>(block) * size) * around.inner;
      const std::int64_t from = (o * around.extent + source[block] * size) * around.inner;
      std::copy_n(values.begin() + from, size * around.inner, result.begin() + to);
    }
  }
  return result;
}

bool is_permutation_of_blocks(std::vector<std::int64_t> source) {
  std::sort(source.begin(), source.end());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

// Squared error of each index of a dimension.
std::vector<double> squares_along(const Suspect& suspect, const Around& around) {
  std::vector<double> squares;
  for (std::int64_t i = 0; i < around.extent; ++i) {
    squares.push_back(around.square_between(suspect.found, i, suspect.expected, i, 1));
  }
  return squares;
}

std::string ranges_of(const std::vector<std::int64_t>& indices) {
  std::string text;
  for (std::size_t i = 0; i < indices.size();) {
    std::size_t end = i;
    while (end + 1 < indices.size() && indices[end + 1] == indices[end] + 1) ++end;
    if (text.size() > 60) return text + ", ...";
    text += fmt::format("{}{}", text.empty() ? "" : ", ", indices[i]);
    if (end > i) text += fmt::format("-{}", indices[end]);
    i = end + 1;
  }
  return text;
}

}  // namespace

std::optional<Diagnosis> permuted_blocks(const Suspect& suspect) {
  const Shape& shape = suspect.reference.shape;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const Around around(shape, dim);
    for (std::int64_t blocks = 2; blocks <= std::min(kMostBlocks, around.extent); ++blocks) {
      if (around.extent % blocks != 0) continue;
      const std::vector<std::int64_t> source = nearest_blocks(suspect, around, blocks);
      std::vector<std::int64_t> identity(source.size());
      std::iota(identity.begin(), identity.end(), 0);
      if (source == identity || !is_permutation_of_blocks(source)) continue;
      const std::string what = fmt::format("of {} blocks of dimension {}, those at 0, 1, ... are the reference's {}",
                                           blocks, dim, fmt::join(source, ", "));
      if (auto found =
              suspect.explained_by(Cause::kPermutedBlocks, rearranged(suspect.expected, around, source), what)) {
        return found;
      }
    }
  }
  return std::nullopt;
}

// Rows are along the last dimension.
std::optional<Diagnosis> other_rows(const Suspect& suspect) {
  const Shape& shape = suspect.reference.shape;
  if (shape.size() < 2 || shape.back() < 2) return std::nullopt;
  const auto width = shape.back();
  const auto rows = static_cast<std::int64_t>(suspect.expected.size()) / width;
  if (rows * rows * width > kMostComparisons) return std::nullopt;
  const Around around({rows, width}, 0);
  const Values nothing(suspect.expected.size());
  Values explained = suspect.expected;
  std::int64_t wrong = 0;
  std::set<std::int64_t> sources;
  for (std::int64_t row = 0; row < rows; ++row) {
    const double norm = around.square_between(suspect.expected, row, nothing, 0, 1);
    const double own = around.square_between(suspect.found, row, suspect.expected, row, 1);
    if (own <= suspect.bound * suspect.bound * norm) continue;
    ++wrong;
    double least = own;
    std::int64_t source = row;
    for (std::int64_t other = 0; other < rows; ++other) {
      const double square = around.square_between(suspect.found, row, suspect.expected, other, 1);
      if (square < least) {
        least = square;
        source = other;
      }
    }
    sources.insert(source);
    std::copy_n(suspect.expected.begin() + source * width, width, explained.begin() + row * width);
  }
  if (wrong == 0 || wrong == rows) return std::nullopt;
  const std::string from = sources.size() == 1 ? fmt::format("the value of row {}", *sources.begin())
                                               : fmt::format("the values of {} others", sources.size());
  return suspect.explained_by(Cause::kOtherRows, explained,
                              fmt::format("{} of {} rows hold {}; the rest is right", wrong, rows, from));
}

std::optional<Diagnosis> region(const Suspect& suspect) {
  const Shape& shape = suspect.reference.shape;
  std::optional<Diagnosis> best;
  double least_share = 0.75;  // a region that is almost all of it tells nothing
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const Around around(shape, dim);
    if (around.extent < 2) continue;
    const std::vector<double> squares = squares_along(suspect, around);
    const Values nothing(suspect.expected.size());
    double rest = 0, rest_norm = 0;
    std::vector<std::int64_t> wrong;
    for (std::int64_t i = 0; i < around.extent; ++i) {
      const double norm = around.square_between(suspect.expected, i, nothing, 0, 1);
      if (squares[static_cast<std::size_t>(i)] > suspect.bound * suspect.bound * norm) {
        wrong.push_back(i);
      } else {
        rest += squares[static_cast<std::size_t>(i)];
        rest_norm += norm;
      }
    }
    const double share = static_cast<double>(wrong.size()) / static_cast<double>(around.extent);
    if (wrong.empty() || share >= least_share || rest_norm == 0) continue;
    const auto found = suspect.explained_by(Cause::kRegion, std::sqrt(rest / rest_norm),
                                            fmt::format("wrong at {} of dimension {} only ({} of {}), right elsewhere",
                                                        ranges_of(wrong), dim, wrong.size(), around.extent));
    if (!found) continue;
    best = found;
    least_share = share;
  }
  return best;
}

}  // namespace ttrace
