// Tests whether the norm that gradients are clipped by is that of other gradients than all: it lacks some, has those of a
// rank alone, or counts copies; or is another norm of all.
//
// The candidate's own main gradients, which are right where the norm is the first that is wrong, tell all of these. A single
// number is near some of so many predictions by chance; so it must be near to within a share of the error that is smaller
// the more predictions there are.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/tensor_name.h"
#include "diagnose/hypothesis.h"

namespace ttrace {
namespace {

constexpr double kNearNorm = 1e-3;  // of the reference's: so near all main gradients must come to it
constexpr std::int64_t kMostReadForNorms = std::int64_t{1} << 24;

// The squares of an iteration's main gradients, and of some of them.
struct GradientSquares {
  double all = 0, largest = 0, magnitudes = 0;
  double copies = 0;                       // each copy counts
  std::map<std::int32_t, double> of_rank;  // what it holds, copies as well
  std::map<std::string, double> of_group;  // by the path of a module, or `weight` of all modules
};

void add_groups(const std::string& name, double square, GradientSquares& squares) {
  squares.of_group[name] += square;
  for (std::string_view path = owner_of(name); path != kRootModule; path = owner_of(path)) {
    squares.of_group[std::string(path)] += square;
  }
}

std::optional<GradientSquares> squares_of_gradients(const Suspect& suspect) {
  GradientSquares squares;
  std::int64_t elements = 0;
  for (const auto& [id, tensor] : suspect.evidence.candidate.tensors) {
    if (id.kind != Kind::kMainGrad || id.iteration != suspect.candidate.id.iteration) continue;
    if (!is_floating(tensor.dtype) || !is_small(tensor)) return std::nullopt;
    const std::vector<Piece> pieces = tensor.pieces();
    std::int32_t copies = 1;
    for (const Piece& piece : pieces) {
      copies = std::max(copies, piece.replica + 1);
      if (piece.term != 0) return std::nullopt;
    }
    elements += element_count(tensor.shape) * copies;
    if (elements > kMostReadForNorms) return std::nullopt;
    for (std::int32_t replica = 0; replica < copies; ++replica) {
      const Values values = values_of(tensor, replica);
      if (replica == 0) {
        const double square = dot_of(values, values);
        squares.all += square;
        add_groups(id.name, square, squares);
        for (const double value : values) {
          squares.largest = std::max(squares.largest, std::abs(value));
          squares.magnitudes += std::abs(value);
        }
      }
      for (const LocalTensor& local : local_tensors_of(tensor, replica)) {
        for (const std::int64_t place : local.positions) {
          if (place < 0) continue;
          const double value = values[static_cast<std::size_t>(place)];
          squares.of_rank[local.rank] += value * value;
          squares.copies += value * value;
        }
      }
    }
  }
  return squares;
}

struct NormPrediction {
  double value = 0;
  std::string what;
};

std::vector<NormPrediction> norms_of(const GradientSquares& squares, const Suspect& suspect) {
  std::vector<NormPrediction> norms;
  const auto add = [&](double value, std::string what) {
    const bool is_known = std::any_of(norms.begin(), norms.end(), [&](const NormPrediction& norm) {
      return std::abs(norm.value - value) <= 1e-9 * value;
    });
    if (value > 0 && !is_known) norms.push_back({value, std::move(what)});
  };
  const double norm = std::sqrt(squares.all);
  add(norm, "");  // what comes to the same as all of them is no cause
  add(squares.largest,
      "it is the largest magnitude of all gradients, where the reference's is the root of their squares");
  add(squares.magnitudes, "it is the sum of the magnitudes, where the reference's is the root of the squares");
  add(squares.all, "it is the sum of the squares, of which the root was not taken");
  for (const Axis& axis : all_axes(suspect.evidence.mesh)) {
    if (axis.size < 2) continue;
    add(norm * std::sqrt(static_cast<double>(axis.size)),
        fmt::format("it is the root of the size of {} times the norm of all gradients: their squares count once for "
                    "each copy on its ranks",
                    axis.name));
    add(norm / std::sqrt(static_cast<double>(axis.size)),
        fmt::format("it is the norm of all gradients over the root of the size of {}", axis.name));
  }
  add(std::sqrt(squares.copies),
      "it counts each copy of a gradient that several ranks hold: those twice that two hold");
  for (const auto& [rank, square] : squares.of_rank) {
    add(std::sqrt(square), fmt::format("it is the norm of the gradients that rank {} holds, alone", rank));
    add(std::sqrt(std::max(0.0, squares.all - square)), fmt::format("the norm lacks the gradients of rank {}", rank));
  }
  for (const auto& [group, square] : squares.of_group) {
    add(std::sqrt(std::max(0.0, squares.all - square)),
        fmt::format("the norm lacks the gradients of {}", printable(group)));
    add(std::sqrt(squares.all + square), fmt::format("the norm counts the gradients of {} twice", printable(group)));
    add(std::sqrt(square), fmt::format("it is the norm of the gradients of {} alone", printable(group)));
  }
  return norms;
}

}  // namespace

std::optional<Diagnosis> other_norm(const Suspect& suspect) {
  const TensorId& id = suspect.candidate.id;
  const bool is_norm = id.kind == Kind::kScalar && id.microbatch == kNoMicrobatch &&
                       suspect.candidate_values.size() == 1 && id.name.get().find("norm") != std::string::npos;
  if (!is_norm) return std::nullopt;
  const std::optional<GradientSquares> squares = squares_of_gradients(suspect);
  const double right = suspect.reference_values[0], wrong = suspect.candidate_values[0];
  if (!squares || std::abs(std::sqrt(squares->all) - right) > std::max(kNearNorm, suspect.bound) * right)
    return std::nullopt;
  const std::vector<NormPrediction> norms = norms_of(*squares, suspect);
  const double most = std::abs(wrong - right) * kLargestShareLeft / static_cast<double>(norms.size());
  const NormPrediction* nearest = nullptr;
  for (const NormPrediction& norm : norms) {
    const double apart = std::abs(norm.value - wrong);
    if (apart > most || (nearest != nullptr && apart >= std::abs(nearest->value - wrong))) continue;
    nearest = &norm;
  }
  if (nearest == nullptr || nearest->what.empty()) return std::nullopt;
  return suspect.explained_by(Cause::kOtherNorm, Values{nearest->value}, nearest->what);
}

}  // namespace ttrace
