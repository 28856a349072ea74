// Tests whether the norm that gradients are clipped by is that of other gradients than all: it lacks some, as those of a
// module, of a rank, or that the ranks at one place of an axis alone hold; has those of a rank alone, or counts copies; or
// is another norm of all.
//
// The candidate's own main gradients, which are right where the norm is the first that is wrong, tell all of these. A single
// number is near some of so many predictions by chance; so it must be near to within a share of the error that is smaller
// the more predictions there are.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/describe.h"
#include "base/tensor_name.h"
#include "diagnose/hypothesis.h"
#include "tolerance/coherence.h"

namespace ttrace {
namespace {

constexpr double kNearNorm = 1e-3;  // of the reference's: so near all main gradients must come to it
constexpr std::int64_t kMostReadForNorms = std::int64_t{1} << 24;

struct GroupOfGradients {
  double square = 0;
  std::vector<std::string> members;  // to be named; none where what they have in common says it

  void add(double more, const std::string& member) {
    square += more;
    if (std::find(members.begin(), members.end(), member) == members.end()) members.push_back(member);
  }
};

// The squares of an iteration's main gradients, and of some of them.
struct GradientSquares {
  double all = 0, largest = 0, magnitudes = 0;
  double copies = 0;                                 // each copy counts
  std::map<std::int32_t, double> of_rank;            // what it holds, copies as well
  std::map<std::string, GroupOfGradients> of_group;  // by what they have in common: a path, a class, ...
  // Parameters, by axis and the coordinate on it that all ranks have which hold a copy or a part.
  std::map<std::string, std::map<std::int64_t, GroupOfGradients>> of_place;
  std::map<std::string, std::size_t> parameters_of;  // the number of them, by path
};

// The classes of modules, by their paths.
std::map<std::string, std::string> classes_of_modules(const Alignment& side) {
  std::map<std::string, std::string> classes;
  for (const auto& [id, tensor] : side.tensors) {
    if (id.kind != Kind::kOutput) continue;
    const TensorName name(id.name);
    classes.emplace(name.path, last_component(tensor.module_class.get()));
  }
  return classes;
}

bool is_split(const LogicalTensor& tensor) {
  const std::vector<LocalTensor> parts = local_tensors_of(tensor);
  return std::any_of(parts.begin(), parts.end(), [&](const LocalTensor& part) { return part.shape != tensor.shape; });
}

void add_groups(const LogicalTensor& tensor, double square, const std::map<std::string, std::string>& classes,
                GradientSquares& squares) {
  const std::string& name = tensor.id.name.get();
  squares.of_group[printable(name)].square += square;
  for (std::string_view path = owner_of(name); path != kRootModule; path = owner_of(path)) {
    squares.of_group[printable(path)].square += square;
    ++squares.parameters_of[std::string(path)];
  }
  const auto module_class = classes.find(std::string(owner_of(name)));
  if (module_class != classes.end()) {
    squares.of_group["all modules of class " + printable(module_class->second)].add(square, printable(owner_of(name)));
  }
  if (is_split(tensor)) squares.of_group["all parameters that are split over ranks"].add(square, printable(name));
}

// Enters a gradient that the ranks at one place of an axis alone hold.
void add_places(const LogicalTensor& tensor, double square, const std::vector<Piece>& pieces, const Mesh& mesh,
                GradientSquares& squares) {
  std::set<std::int32_t> ranks;
  for (const Piece& piece : pieces) ranks.insert(piece.rank);
  const Axes axes = factorings_of(mesh)[tensor.factoring];
  for (const Axis& axis : axes) {
    std::set<std::int64_t> places;
    for (const std::int32_t rank : ranks) places.insert(coordinates_of(axes, rank).at(axis.name));
    if (axis.size < 2 || places.size() != 1) continue;
    squares.of_place[axis.name][*places.begin()].add(square, tensor.id.name);
  }
}

// Returns the paths that have these parameters and no others, each as short as may be.
std::vector<std::string> paths_of(const std::vector<std::string>& parameters, const GradientSquares& squares) {
  std::map<std::string, std::size_t> among;
  for (const std::string& name : parameters) {
    for (std::string_view path = owner_of(name); path != kRootModule; path = owner_of(path)) ++among[std::string(path)];
  }
  std::set<std::string> paths;
  for (const std::string& name : parameters) {
    std::string whole = name;
    for (std::string path(owner_of(name)); path != kRootModule; path = owner_of(path)) {
      if (among.at(path) == squares.parameters_of.at(path)) whole = path;
    }
    paths.insert(printable(whole));
  }
  return {paths.begin(), paths.end()};
}

std::optional<GradientSquares> squares_of_gradients(const Suspect& suspect) {
  GradientSquares squares;
  const std::map<std::string, std::string> classes = classes_of_modules(suspect.evidence.candidate);
  std::int64_t elements = 0;
  SeenGradients seen;
  for (const auto& [id, tensor] : suspect.evidence.candidate.tensors) {
    if (id.kind != Kind::kMainGrad || id.iteration != suspect.candidate.id.iteration) continue;
    if (!is_new_gradient(tensor, seen)) continue;
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
        add_groups(tensor, square, classes, squares);
        add_places(tensor, square, pieces, suspect.evidence.mesh, squares);
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
  for (const auto& [axis, places] : squares.of_place) {
    GroupOfGradients of_others;  // than the first
    for (const auto& [place, of] : places) {
      add(std::sqrt(std::max(0.0, squares.all - of.square)),
          fmt::format("the norm lacks the gradients that rank {} of {} alone holds ({})", place, axis,
                      comma_list(paths_of(of.members, squares))));
      if (place == 0) continue;
      of_others.square += of.square;
      of_others.members.insert(of_others.members.end(), of.members.begin(), of.members.end());
    }
    add(std::sqrt(std::max(0.0, squares.all - of_others.square)),
        fmt::format("the norm lacks the gradients that one rank of {} alone holds, but for those of rank 0 ({})", axis,
                    comma_list(paths_of(of_others.members, squares))));
  }
  for (const bool by_path : {true, false}) {
    for (const auto& [common, of] : squares.of_group) {
      if (of.members.empty() != by_path || of.members.size() == 1) continue;  // one alone is a group of its own
      const std::string group = by_path ? common : fmt::format("{} ({})", common, comma_list(of.members));
      add(std::sqrt(std::max(0.0, squares.all - of.square)), fmt::format("the norm lacks the gradients of {}", group));
      add(std::sqrt(squares.all + of.square), fmt::format("the norm counts the gradients of {} twice", group));
      add(std::sqrt(of.square), fmt::format("it is the norm of the gradients of {} alone", group));
    }
  }
  return norms;
}

}  // namespace

bool is_new_gradient(const LogicalTensor& gradient, SeenGradients& seen) {
  const std::vector<Piece> pieces = gradient.pieces();
  const bool is_recorded = !pieces.empty() && pieces[0].entry != nullptr;
  return !is_recorded || seen.emplace(gradient.shape, pieces[0].entry->checksum).second;
}

std::optional<Diagnosis> other_norm(const Suspect& suspect) {
  const TensorId& id = suspect.candidate.id;
  if (!is_gradient_norm({id.kind, id.name}) || suspect.candidate_values.size() != 1) return std::nullopt;
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
