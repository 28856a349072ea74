// Measures what the norm of all gradients is off by in the reference itself. PyTorch adds up the squares of a
// parameter's gradient one after the other in fp32, in lanes, and the norm of 524,288 normal numbers comes out 4e-6 too
// small in every run; a program that has q, k and v in one parameter, or half of each on a rank, adds up others. The
// trace holds what is added up, the gradients that the optimizer uses, and comparing runs has added up their squares in
// fp64.
#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tolerance/estimate.h"
#include "tolerance/floors.h"

namespace ttrace {
namespace {

// The norm of all gradients of one iteration, as recorded and as the gradients give it.
struct GradientNorm {
  double exact_square = 0;
  GradientSizes gradients;
  std::vector<std::pair<const LogicalTensor*, double>> recorded;  // several where a program clips by parts
};

}  // namespace

OwnRoundings measure_own_norms(std::span<const TensorPair> pairs, std::span<const Difference> differences) {
  std::map<std::int32_t, GradientNorm> norms;  // by iteration
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const LogicalTensor& tensor = *pairs[i].reference;
    GradientNorm& norm = norms[tensor.id.iteration];
    if (is_gradient_norm({tensor.id.kind, tensor.id.name}))
      norm.recorded.emplace_back(&tensor, std::sqrt(differences[i].reference_square));
    if (tensor.id.kind != Kind::kMainGrad) continue;
    norm.exact_square += differences[i].reference_square;
    norm.gradients.add(element_count(tensor.shape));
  }
  OwnRoundings all;
  for (const auto& [iteration, norm] : norms) {
    for (const auto& [tensor, recorded] : norm.recorded) {
      const double off = std::fabs(std::sqrt(norm.exact_square) - recorded) / recorded;
      if (!(off <= norm.gradients.rounding_of_norm(tensor->dtype))) continue;
      OwnRounding& largest = all[{Kind::kScalar, tensor->id.name}];
      if (off > largest.norm) largest = {off, off, off};
    }
  }
  return all;
}

}  // namespace ttrace
