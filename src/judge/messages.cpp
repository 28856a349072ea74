#include "judge/messages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/describe.h"

namespace ttrace {
namespace {

// The box of the cell whose sketch is the most different, as [0:128, 256:384].
std::string box_of_worst_cell(const SketchMeasure& sketch) {
  std::vector<std::string> ranges;
  for (std::size_t d = 0; d < sketch.worst_cell.size(); ++d) {
    ranges.push_back(fmt::format("{}:{}", sketch.worst_cell[d], sketch.worst_cell[d] + sketch.worst_cell_size[d]));
  }
  return fmt::format("[{}]", fmt::join(ranges, ", "));
}

std::string describe_worst(const Difference& difference) {
  if (difference.sketch) {
    if (difference.sketch->worst_cell.empty()) return "";
    return fmt::format("; by sketches, whose worst cell is {}, on rank {}", box_of_worst_cell(*difference.sketch),
                       difference.sketch->worst_rank);
  }
  if (difference.worst_index.empty() && difference.worst_rank < 0) return "";
  const bool is_elsewhere = difference.worst_local_index != difference.worst_index;
  return fmt::format("; worst at {}: reference {:.6g}, candidate {:.6g}, on rank {}{}",
                     to_string(difference.worst_index), difference.worst_reference, difference.worst_candidate,
                     difference.worst_rank,
                     is_elsewhere ? fmt::format(" at {}", to_string(difference.worst_local_index)) : "");
}

// Writes `value` with one digit more than `tolerance` has.
std::string digits_of(double value, double tolerance) {
  const int digits = tolerance > 0 ? static_cast<int>(std::ceil(-std::log10(tolerance))) + 1 : 1;
  return fmt::format("{:.{}f}", value, std::clamp(digits, 1, 15));
}

std::string describe_holders(std::span<const std::int32_t> ranks) {
  return ranks.empty() ? "" : fmt::format("; on {}", describe_ranks(ranks));
}

// Says where the worst element is, and which ranks hold the error, unless that one alone does.
std::string describe_place(const Difference& difference, std::span<const std::int32_t> ranks) {
  const std::string worst = describe_worst(difference);
  const std::int32_t rank = difference.sketch ? difference.sketch->worst_rank : difference.worst_rank;
  const bool says_it = !worst.empty() && ranks.size() == 1 && ranks.front() == rank;
  return worst + (says_it ? "" : describe_holders(ranks));
}

// Names a factor when the candidate equals the reference times this factor, to within what a correct tensor may differ
// by. A single element is a multiple of any other, so a factor says nothing about it.
std::string describe_factor(const TensorPair& pair, const Difference& difference, double allowed) {
  const double rounding = std::max(epsilon_of(pair.reference->dtype), epsilon_of(pair.candidate->dtype));
  const double factor = difference.uniform_factor();
  if (difference.elements < 2 || !std::isfinite(factor) || factor == 0) return "";
  if (!(difference.uniform_factor_residual() <= std::max(allowed, rounding))) return "";
  return fmt::format("; looks like a factor of {:.3f}", factor);
}

}  // namespace

std::int64_t row_of_worst(const Difference& difference, const TensorPair& pair) {
  const Shape& shape = whole_shape_of(*pair.reference);
  std::int64_t row = 0;
  for (std::size_t d = 0; d + 1 < difference.worst_index.size(); ++d) {
    row = row * shape[d] + difference.worst_index[d];
  }
  return row;
}

std::string describe_statistic(const TensorPair& pair, const Difference& difference, const JudgedStatistic& judged,
                               std::span<const std::int32_t> ranks) {
  const std::string place = describe_place(difference, ranks);
  if (judged.statistic == Statistic::kScale) {
    return fmt::format("all elements together are {} times the reference's; correct runs: within {:.2g}{}",
                       digits_of(1 + judged.measured, judged.allowed), judged.allowed, describe_holders(ranks));
  }
  if (judged.statistic == Statistic::kRow) {
    const Shape& shape = whole_shape_of(*pair.reference);
    const Shape row = index_at(difference.worst_row, {shape.begin(), shape.end() - 1});
    return fmt::format("row {} of {} differs by {:.3g} times the norm of a typical row; correct runs: up to {:.2g}{}",
                       to_string(row), difference.rows, judged.measured, judged.allowed, place);
  }
  if (judged.statistic == Statistic::kCell) {
    return fmt::format(
        "a cell of its sketch differs by {:.3g} times the norm of a typical one; correct runs: up to {:.2g}{}",
        judged.measured, judged.allowed, place);
  }
  return fmt::format(
      "one of {} elements differs by {:.3g} times the size of a typical one; correct runs: up to {:.2g}{}",
      difference.elements, judged.measured, judged.allowed, place);
}

std::string describe_coherence(const ToleranceKey& group, std::size_t tensors, const JudgedStatistic& judged) {
  return fmt::format(
      "together the {} tensors {} {} are {} times the reference's, beside the other tensors of their layers; correct "
      "runs: within {:.2g}",
      tensors, group.second, name_of(group.first), digits_of(1 + judged.measured, judged.allowed), judged.allowed);
}

std::string describe_excess(const TensorPair& pair, const Difference& difference, double allowed,
                            std::span<const std::int32_t> ranks) {
  const double rel_err = difference.rel_err();
  std::string text = fmt::format("rel_err {:.3g}, allowed {:.3g}", rel_err, allowed);
  if (std::isinf(rel_err)) {
    text += " (the reference is zero)";
  } else if (allowed > 0) {
    text += fmt::format(" ({:.3g} times)", rel_err / allowed);
  }
  return text + describe_place(difference, ranks) + describe_factor(pair, difference, allowed);
}

std::string describe_exact(const Difference& difference, std::span<const std::int32_t> ranks) {
  return fmt::format("{} of {} elements differ; integers and bool must be equal{}", difference.differing,
                     difference.elements, describe_place(difference, ranks));
}

std::string describe_nonfinite(const Difference& difference) {
  if (difference.sketch) {
    return fmt::format(
        "NaN or Inf at other places: by sketches, the reference has {} and the candidate {}, at least {} of {} "
        "elsewhere",
        difference.reference_nan, difference.candidate_nan, difference.nonfinite_mismatch, difference.elements);
  }
  return fmt::format(
      "NaN or Inf at other places: the reference has {} NaN and {} Inf, the candidate {} NaN and {} Inf; "
      "{} of {} elements disagree",
      difference.reference_nan, difference.reference_inf, difference.candidate_nan, difference.candidate_inf,
      difference.nonfinite_mismatch, difference.elements);
}

std::string describe_replicas(std::string_view side, std::span<const std::int32_t> ranks, double rel_err,
                              double allowed) {
  return fmt::format("{}copies that must be equal differ by {:.3g} of their norm, allowed {:.3g}: {} against the first",
                     side, rel_err, allowed, describe_ranks(ranks));
}

}  // namespace ttrace
