// Rows of scores that a tensor is the gradient with respect to, and what terms of a loss that they tell are in it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "diagnose/hypothesis.h"

namespace ttrace {

// Along the last dimension.
struct RowsOfScores {
  std::size_t width = 0;
  Values scores, shares, log_sums;  // shares: the softmax of a row; log_sums: by row

  explicit RowsOfScores(const LogicalTensor& tensor);
  std::size_t count() const { return log_sums.size(); }
};

// Returns the scores that the suspect is the gradient with respect to, as the candidate has them.
std::optional<RowsOfScores> rows_of_scores(const Suspect& suspect);

// Returns what the candidate has more than the reference.
Values surplus_of(const Suspect& suspect);

// A surplus as a multiple of a term.
struct TermFit {
  double times = 0, left = 0;  // the second: the norm of what it leaves
};

// Of a term that has fewer rows, in as many.
TermFit fit_term(std::span<const double> surplus, const Values& term);

std::string describe_surplus(double times, std::string_view of_what);

}  // namespace ttrace
