#include "diagnose/rank_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "base/describe.h"
#include "base/lookup.h"
#include "diagnose/hypothesis.h"
#include "judge/match.h"

namespace ttrace {
namespace {

// One copy of a tensor: its values, and the rank that holds each; -1 where none does.
struct Copy {
  Values values;
  std::vector<std::int32_t> ranks;
};

// Elements of all copies that are read, as many as take a second; of more nothing is said.
constexpr std::int64_t kMostRead = std::int64_t{1} << 24;
constexpr double kRoundings = 64;

std::int32_t count_copies(const LogicalTensor& tensor) {
  std::int32_t last = 0;
  for (const Piece& piece : tensor.pieces()) last = std::max(last, piece.replica);
  return last + 1;
}

template <typename Visit>
void for_each_copy(const LogicalTensor& tensor, const Visit& visit) {
  const std::int32_t copies = count_copies(tensor);
  for (std::int32_t replica = 0; replica < copies; ++replica) {
    Copy copy{values_of(tensor, replica), {}};
    copy.ranks.assign(copy.values.size(), -1);
    for (const LocalTensor& local : local_tensors_of(tensor, replica)) {
      for (const std::int64_t at : local.positions) {
        if (at >= 0) copy.ranks[static_cast<std::size_t>(at)] = local.rank;
      }
    }
    visit(copy);
  }
}

// A main gradient of both sides.
struct Gradient {
  std::size_t root = 0;
  double bound = 0;  // what it may differ by
  Values reference;
  const LogicalTensor* candidate = nullptr;
};

bool has_terms(const LogicalTensor& tensor) {
  const std::vector<Piece> pieces = tensor.pieces();
  return std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.term != 0; });
}

struct Fit {
  double dot = 0, square = 0;
  double factor() const { return dot / square; }
};
using Fits = std::map<std::int32_t, Fit>;  // by rank

Fits fit(const std::vector<Gradient>& gradients) {
  Fits fits;
  for (const Gradient& gradient : gradients) {
    for_each_copy(*gradient.candidate, [&](const Copy& copy) {
      for (std::size_t i = 0; i < copy.values.size(); ++i) {
        if (copy.ranks[i] < 0) continue;
        Fit& of_rank = fits[copy.ranks[i]];
        of_rank.dot += copy.values[i] * gradient.reference[i];
        of_rank.square += gradient.reference[i] * gradient.reference[i];
      }
    });
  }
  return fits;
}

// The largest residual of a copy.
double residual_of(const Gradient& gradient, const Fits& fits) {
  double largest = 0;
  for_each_copy(*gradient.candidate, [&](const Copy& copy) {
    Values predicted = gradient.reference;
    for (std::size_t i = 0; i < predicted.size(); ++i) {
      if (copy.ranks[i] >= 0) predicted[i] *= fits.at(copy.ranks[i]).factor();
    }
    largest = std::max(largest, relative_distance(copy.values, predicted));
  });
  return largest;
}

// The squares of an iteration's main gradients that each rank of the candidate holds.
using Squares = std::map<std::int32_t, double>;

// Nothing where a main gradient cannot be read on both sides, or they are too large together.
std::optional<Squares> squares_of(std::int32_t iteration, const Evidence& evidence) {
  Squares squares;
  std::int64_t elements = 0;
  SeenGradients seen;
  for (const auto& [id, tensor] : evidence.reference.tensors) {
    if (id.kind != Kind::kMainGrad || id.iteration != iteration || !is_new_gradient(tensor, seen)) continue;
    const LogicalTensor* candidate = find_tensor(evidence.candidate, id);
    if (candidate == nullptr || !is_comparable(tensor, *candidate) || has_terms(*candidate)) return std::nullopt;
    elements += element_count(tensor.shape) * count_copies(*candidate);
    if (elements > kMostRead) return std::nullopt;
    for_each_copy(*candidate, [&](const Copy& copy) {
      for (std::size_t i = 0; i < copy.values.size(); ++i) {
        if (copy.ranks[i] >= 0) squares[copy.ranks[i]] += copy.values[i] * copy.values[i];
      }
    });
  }
  return squares;
}

// The norm that the main gradients of each rank have by themselves, where they have one, to a hundredth of what the ranks'
// factors are apart: they are clipped to it. Ranks with the largest factor may have less, and are not clipped then. Two
// that have it must have unlike factors: copies have one norm anyway.
std::optional<double> norm_of_each_rank(const Fits& fits, const Squares& squares) {
  double least = INFINITY, most = 0, norm = 0;
  for (const auto& [rank, of_rank] : fits) {
    least = std::min(least, of_rank.factor());
    most = std::max(most, of_rank.factor());
    norm = std::max(norm, std::sqrt(squares.at(rank)));
  }
  const double near = (most - least) / 100;
  double least_clipped = INFINITY, most_clipped = 0;
  for (const auto& [rank, of_rank] : fits) {
    if (std::abs(std::sqrt(squares.at(rank)) / norm - 1) <= near) {
      least_clipped = std::min(least_clipped, of_rank.factor());
      most_clipped = std::max(most_clipped, of_rank.factor());
    } else if (of_rank.factor() < most - near) {
      return std::nullopt;
    }
  }
  return most_clipped - least_clipped > near ? std::optional(norm) : std::nullopt;
}

std::string describe(const std::vector<Gradient>& gradients, const Fits& fits, const Squares& squares) {
  std::vector<std::string> words;
  for (const auto& [rank, of_rank] : fits) words.push_back(fmt::format("{:.4g} on rank {}", of_rank.factor(), rank));
  std::string text = fmt::format("in all {} parameters it is one number a rank times the reference's: {}",
                                 gradients.size(), comma_list(words));
  const std::optional<double> norm = norm_of_each_rank(fits, squares);
  if (!norm) return text;
  return fmt::format(
      "{}; on each rank the norm of all main gradients that it holds is {:.4g}, "
      "or less where they are not scaled down: clipped by each rank's own norm",
      text, *norm);
}

// True where a factor, or nothing, explains the error of the tensor alone.
bool is_open(const std::optional<Diagnosis>& diagnosis) {
  return !diagnosis || diagnosis->cause == Cause::kRegion || diagnosis->cause == Cause::kRankFactor ||
         diagnosis->cause == Cause::kUniformFactor;
}

std::optional<Gradient> gradient_of(std::size_t root, const Finding& finding, const Evidence& evidence) {
  const LogicalTensor* reference = counterpart(evidence.reference, finding.id);
  const LogicalTensor* candidate = find_tensor(evidence.candidate, finding.id);
  if (reference == nullptr || candidate == nullptr || !is_comparable(*reference, *candidate)) return std::nullopt;
  if (has_terms(*candidate)) return std::nullopt;
  // Copies must be equal, and nothing is allowed then; what clips them has summed in its own order.
  const double bound = std::max(finding.allowed.value_or(0), kRoundings * epsilon_of(candidate->dtype));
  return Gradient{root, bound, values_of(*reference), candidate};
}

// The roots that are main gradients of the iteration; none where one of them cannot be looked into.
std::vector<Gradient> gradients_of(std::int32_t iteration, const Report& report, const Evidence& evidence,
                                   const std::vector<std::optional<Diagnosis>>& diagnoses) {
  std::vector<Gradient> gradients;
  for (std::size_t i = 0; i < diagnoses.size(); ++i) {
    const Finding& finding = report.findings[report.explanation.roots[i].finding];
    if (finding.id.kind != Kind::kMainGrad || finding.id.iteration != iteration) continue;
    auto gradient = is_open(diagnoses[i]) ? gradient_of(i, finding, evidence) : std::nullopt;
    if (!gradient) return {};
    gradients.push_back(std::move(*gradient));
  }
  return gradients;
}

// True where ranks have factors of their own, further apart than some gradient may differ, and these explain each of the
// gradients. A gradient that is zero but for rounding may differ by a multiple of itself, and tells no factors.
bool explains(const std::vector<Gradient>& gradients, const Fits& fits) {
  const double first = fits.empty() ? 0 : fits.begin()->second.factor();
  double bound = INFINITY;
  for (const Gradient& gradient : gradients) {
    if (!(residual_of(gradient, fits) <= gradient.bound)) return false;
    bound = std::min(bound, gradient.bound);
  }
  return std::any_of(fits.begin(), fits.end(), [&](const auto& item) {
    return std::abs(item.second.factor() - first) > bound * std::abs(first);
  });
}

}  // namespace

void add_rank_scales(const Report& report, const Evidence& evidence, std::vector<std::optional<Diagnosis>>& diagnoses) {
  std::set<std::int32_t> iterations;
  for (const RootCause& root : report.explanation.roots) {
    const TensorId& id = report.findings[root.finding].id;
    if (id.kind == Kind::kMainGrad) iterations.insert(id.iteration);
  }
  for (const std::int32_t iteration : iterations) {
    const std::optional<Squares> squares = squares_of(iteration, evidence);
    if (!squares) continue;
    const std::vector<Gradient> gradients = gradients_of(iteration, report, evidence, diagnoses);
    std::size_t elements = 0;
    for (const Gradient& gradient : gradients) elements += gradient.reference.size();
    if (gradients.size() < 2 || elements < kFewestValues) continue;
    const Fits fits = fit(gradients);
    if (!explains(gradients, fits)) continue;
    const std::string what = describe(gradients, fits, *squares);
    for (const Gradient& gradient : gradients) {
      diagnoses[gradient.root] = Diagnosis{Cause::kRankFactor, residual_of(gradient, fits), what};
    }
  }
}

}  // namespace ttrace
