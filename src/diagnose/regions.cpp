#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "diagnose/hypothesis.h"
#include "diagnose/slices.h"

namespace ttrace {
namespace {

// The parts of a tensor (the indices of a dimension, or the ranks' shards), each with its squared error, its squared
// norm and its number of elements.
struct PartErrors {
  std::vector<double> squares, norms;
  std::vector<std::int64_t> sizes;
};

struct WrongParts {
  std::vector<std::int64_t> parts;
  double share = 0;     // of the tensor's elements
  double residual = 0;  // relative error of the other parts
};

std::int64_t count_runs(const std::vector<std::int64_t>& indices) {
  std::int64_t runs = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) runs += i == 0 || indices[i] != indices[i - 1] + 1;
  return runs;
}

// Returns the parts that differ by more than is allowed, if they stand out. They do not where one error of about that
// size is all over the tensor: some parts exceed it then, and some do not.
std::optional<WrongParts> find_wrong_parts(const PartErrors& parts, double bound) {
  constexpr std::int64_t kMostRuns = 4;  // of consecutive indices: an error all over makes many short runs
  WrongParts wrong;
  double rest = 0, rest_norm = 0, least_wrong = INFINITY, most_right = 0, elements = 0;
  for (std::size_t i = 0; i < parts.squares.size(); ++i) {
    const double ratio = std::sqrt(parts.squares[i] / parts.norms[i]);
    elements += static_cast<double>(parts.sizes[i]);
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
  if (wrong.parts.empty() || wrong.parts.size() == parts.squares.size()) return std::nullopt;
  const bool is_zero = std::ranges::all_of(parts.norms, [](double norm) { return norm == 0; });
  if (rest_norm == 0 && !is_zero) return std::nullopt;  // the others are zero, which says nothing
  if (count_runs(wrong.parts) > kMostRuns && least_wrong < 2 * most_right) return std::nullopt;
  wrong.share /= elements;
  wrong.residual = is_zero ? 0 : std::sqrt(rest / rest_norm);
  return wrong;
}

PartErrors errors_along(const Suspect& suspect, std::size_t dim) {
  const Slices slices(suspect.reference.shape, dim);
  const Values zeros(suspect.reference_values.size());
  PartErrors parts;
  for (std::int64_t i = 0; i < slices.extent; ++i) {
    parts.squares.push_back(slices.square_between(suspect.candidate_values, i, suspect.reference_values, i, 1));
    parts.norms.push_back(slices.square_between(suspect.reference_values, i, zeros, 0, 1));
    parts.sizes.push_back(slices.outer * slices.inner);
  }
  return parts;
}

PartErrors errors_by_rank(const Suspect& suspect) {
  PartErrors parts;
  for (const LocalTensor& local : suspect.parts) {
    double square = 0, norm = 0;
    std::int64_t size = 0;
    for (const std::int64_t place : local.positions) {
      if (place < 0) continue;
      const double reference = suspect.reference_values[static_cast<std::size_t>(place)];
      const double difference = suspect.candidate_values[static_cast<std::size_t>(place)] - reference;
      square += difference * difference;
      norm += reference * reference;
      ++size;
    }
    parts.squares.push_back(square);
    parts.norms.push_back(norm);
    parts.sizes.push_back(size);
  }
  return parts;
}

// True where the candidate is zero at these indices of the dimension.
bool is_zero_at(const Suspect& suspect, std::size_t dim, const std::vector<std::int64_t>& indices) {
  const Slices slices(suspect.reference.shape, dim);
  const Values zeros(suspect.candidate_values.size());
  return std::all_of(indices.begin(), indices.end(), [&](std::int64_t i) {
    return slices.square_between(suspect.candidate_values, i, zeros, 0, 1) == 0;
  });
}

std::string describe_ranges(const std::vector<std::int64_t>& indices) {
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

// A rank has several parts where it computed the tensor in several calls, or holds stripes of it.
std::string describe_parts(const Suspect& suspect, const std::vector<std::int64_t>& wrong) {
  std::set<std::int32_t> ranks, all;
  for (const std::int64_t i : wrong) ranks.insert(suspect.parts[static_cast<std::size_t>(i)].rank);
  for (const LocalTensor& part : suspect.parts) all.insert(part.rank);
  const std::string counted = fmt::format("{} of {} parts", wrong.size(), suspect.parts.size());
  if (all.size() == suspect.parts.size()) {
    return fmt::format("wrong in the part of rank {} only ({}), right elsewhere", fmt::join(ranks, ", "), counted);
  }
  return fmt::format("wrong in {} only, those of rank{} {}, right elsewhere", counted, ranks.size() == 1 ? "" : "s",
                     fmt::join(ranks, ", "));
}

// What a rank's part takes of a dimension.
struct Extent {
  std::int32_t rank = 0;
  std::int64_t first = 0, last = 0;
};

std::vector<Extent> extents_along(const Suspect& suspect, std::size_t dim) {
  const Slices slices(suspect.reference.shape, dim);
  std::vector<Extent> extents;
  for (const LocalTensor& part : suspect.parts) {
    Extent extent{part.rank, slices.extent, -1};
    for (const std::int64_t place : part.positions) {
      if (place < 0) continue;
      const std::int64_t index = place / slices.inner % slices.extent;
      extent.first = std::min(extent.first, index);
      extent.last = std::max(extent.last, index);
    }
    if (extent.last >= 0) extents.push_back(extent);
  }
  return extents;
}

// A clause where these indices of the dimension are the ends of neighbouring parts: a halo, or its gradient.
std::string describe_borders(const Suspect& suspect, std::size_t dim, const std::vector<std::int64_t>& wrong) {
  const std::vector<Extent> extents = extents_along(suspect, dim);
  std::set<std::int64_t> others(wrong.begin(), wrong.end());
  std::set<std::int32_t> ranks;
  for (const Extent& before : extents) {
    for (const Extent& behind : extents) {
      if (before.rank == behind.rank || before.last + 1 != behind.first) continue;
      const auto take = [&](std::int64_t end, std::int64_t step, const Extent& part) {
        const std::int64_t most =
            std::max<std::int64_t>(1, (part.last - part.first + 1) / 4);  // of a part, as its border
        for (std::int64_t i = 0; i < most && others.erase(end + i * step) > 0; ++i) ranks.insert(part.rank);
      };
      take(before.last, -1, before);
      take(behind.first, 1, behind);
    }
  }
  if (ranks.empty() || !others.empty()) return "";
  return fmt::format(": the border of the parts of ranks {}, over which neighbours hand a halo, or its gradient",
                     fmt::join(ranks, ", "));
}

}  // namespace

std::optional<Diagnosis> region(const Suspect& suspect) {
  std::optional<Diagnosis> best;
  double least_share = 0.75;  // a region that is almost the whole tensor says little
  const auto consider = [&](const std::optional<WrongParts>& wrong, auto&& words) {
    if (!wrong || wrong->share >= least_share) return;
    const auto found = suspect.explained_by(Cause::kRegion, wrong->residual, words(*wrong));
    if (!found) return;
    best = found;
    least_share = wrong->share;
  };
  consider(find_wrong_parts(errors_by_rank(suspect), suspect.bound),
           [&](const WrongParts& wrong) { return describe_parts(suspect, wrong.parts); });
  for (std::size_t dim = 0; dim < suspect.reference.shape.size(); ++dim) {
    consider(find_wrong_parts(errors_along(suspect, dim), suspect.bound), [&](const WrongParts& wrong) {
      return fmt::format("{} at {} of dimension {} only ({} of {}), right elsewhere{}",
                         is_zero_at(suspect, dim, wrong.parts) ? "zero" : "wrong", describe_ranges(wrong.parts), dim,
                         wrong.parts.size(), suspect.reference.shape[dim], describe_borders(suspect, dim, wrong.parts));
    });
  }
  return best;
}

}  // namespace ttrace
