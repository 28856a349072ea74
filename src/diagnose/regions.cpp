#include <algorithm>
#include <cmath>

#include "diagnose/around.h"
#include "diagnose/hypothesis.h"

namespace ttrace {
namespace {

// Parts of a tensor, such as the indices of a dimension or what ranks hold, each with its squared error and norm.
struct Parts {
  std::vector<double> squares, norms;
  std::vector<std::int64_t> sizes;
};

struct Wrong {
  std::vector<std::int64_t> parts;
  double share = 0;     // of the elements
  double residual = 0;  // of the others
};

std::int64_t runs_in(const std::vector<std::int64_t>& indices) {
  std::int64_t runs = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) runs += i == 0 || indices[i] != indices[i - 1] + 1;
  return runs;
}

// The parts that differ by more than is allowed, where these stand out: with one error all over the tensor, which is
// of about that size, some parts exceed it and some do not.
std::optional<Wrong> wrong_among(const Parts& parts, double bound) {
  constexpr std::int64_t kMostRuns = 4;  // of indices: an error all over makes many short ones
  Wrong wrong;
  double rest = 0, rest_norm = 0, least_wrong = INFINITY, most_right = 0, all = 0;
  for (std::size_t i = 0; i < parts.squares.size(); ++i) {
    const double ratio = std::sqrt(parts.squares[i] / parts.norms[i]);
    all += static_cast<double>(parts.sizes[i]);
    if (parts.squares[i] > bound * bound * parts.norms[i]) {
      wrong.parts.push_back(static_cast<std::int64_t>(i));
      wrong.share += static_cast<double>(parts.sizes[i]);
      least_wrong = std::min(least_wrong, ratio);
    } else {
      rest += parts.squares[i];
      rest_norm += parts.norms[i];
      if (parts.norms[i] > 0) most_right = std::max(most_right, ratio);
    }
  }
  if (wrong.parts.empty() || rest_norm == 0) return std::nullopt;
  if (runs_in(wrong.parts) > kMostRuns && least_wrong < 2 * most_right) return std::nullopt;
  wrong.share /= all;
  wrong.residual = std::sqrt(rest / rest_norm);
  return wrong;
}

Parts along(const Suspect& suspect, std::size_t dim) {
  const Around around(suspect.reference.shape, dim);
  const Values nothing(suspect.expected.size());
  Parts parts;
  for (std::int64_t i = 0; i < around.extent; ++i) {
    parts.squares.push_back(around.square_between(suspect.found, i, suspect.expected, i, 1));
    parts.norms.push_back(around.square_between(suspect.expected, i, nothing, 0, 1));
    parts.sizes.push_back(around.outer * around.inner);
  }
  return parts;
}

Parts parts_by_rank(const Suspect& suspect) {
  Parts parts;
  for (const LocalTensor& local : suspect.parts) {
    double square = 0, norm = 0;
    std::int64_t size = 0;
    for (const std::int64_t place : local.positions) {
      if (place < 0) continue;
      const double expected = suspect.expected[static_cast<std::size_t>(place)];
      const double difference = suspect.found[static_cast<std::size_t>(place)] - expected;
      square += difference * difference;
      norm += expected * expected;
      ++size;
    }
    parts.squares.push_back(square);
    parts.norms.push_back(norm);
    parts.sizes.push_back(size);
  }
  return parts;
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

std::optional<Diagnosis> region(const Suspect& suspect) {
  std::optional<Diagnosis> best;
  double least_share = 0.75;  // a region that is almost all of it tells nothing
  const auto consider = [&](const std::optional<Wrong>& wrong, auto&& words) {
    if (!wrong || wrong->share >= least_share) return;
    const auto found = suspect.explained_by(Cause::kRegion, wrong->residual, words(*wrong));
    if (!found) return;
    best = found;
    least_share = wrong->share;
  };
  consider(wrong_among(parts_by_rank(suspect), suspect.bound), [&](const Wrong& wrong) {
    std::vector<std::int32_t> ranks;
    for (const std::int64_t i : wrong.parts) ranks.push_back(suspect.parts[static_cast<std::size_t>(i)].rank);
    return fmt::format("wrong in the part of rank {} only ({} of {} parts), right elsewhere", fmt::join(ranks, ", "),
                       ranks.size(), suspect.parts.size());
  });
  for (std::size_t dim = 0; dim < suspect.reference.shape.size(); ++dim) {
    consider(wrong_among(along(suspect, dim), suspect.bound), [&](const Wrong& wrong) {
      return fmt::format("wrong at {} of dimension {} only ({} of {}), right elsewhere", ranges_of(wrong.parts), dim,
                         wrong.parts.size(), suspect.reference.shape[dim]);
    });
  }
  return best;
}

}  // namespace ttrace
