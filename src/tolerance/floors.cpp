// A tensor's floor is the largest of three.
//
// A perturbation need not reach a tensor at all (a gradient that does not depend on the input), which does not make the
// candidate's rounding of it any smaller: a tensor may always differ by a rounding step of the dtype that computes it.
//
// An optimizer's step is not smooth. Adam's first one is lr * sign(gradient) but for the tiniest gradients: where a
// gradient is close to zero, rounding decides its sign, and that element of param_delta jumps by twice its size. A few
// such elements carry the whole difference, in tensors that a handful of runs cannot foresee. What can be measured is
// how far one element jumps: over all tensors of the kind and all runs,
//
//   jump  = max |x_s[i] - x[i]| / rms(x)
//   floor = jump / sqrt(n)                         n: the tensor's elements
//
// that is, any tensor of the kind may see the largest jump that any of them saw, once; the margin leaves room for
// margin^2 of them. Only tensors with few elements notice. One jump need not be measured: the step is added to the
// parameter and rounded, and the difference of parameters is that step. Where it is small, as SGD's in fp32, another
// rounding of one element is a jump of eps * |w|, eps that of the dtype that the step is recorded in, and the largest
// |w| of n normal ones is about sqrt(2 ln n) times their root mean square.
//
// A single number (the loss, the gradient's norm) is a sum over very many elements, in which rounding errors cancel: a
// rounding step of bf16 is a hundred times what it really moves by, and hides a wrong loss. But the largest of a few
// responses of one number is a matter of luck (of n numbers n errors are pooled, and it is not). Its error being such a
// sum, it is normal: over v responses, a candidate's error divided by their root mean square follows Student's t with v
// degrees of freedom, and
//
//   floor = rms(responses) * t(v) / margin         P(|t| > t(v)) = 1e-4
//
// but no less than a rounding step of the dtype that the number is stored in, and no more than one of the compute
// dtype, which is the floor of everything else: few responses make t large.
#include "tolerance/floors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

namespace ttrace {
namespace {

// The bound that |t| exceeds with a probability of 1e-4, for 3 to 12 degrees of freedom of Student's t. Larger numbers
// count as 12.
constexpr std::array<double, 10> kStudent = {28.00, 15.54, 11.18, 9.08, 7.88, 7.12, 6.59, 6.21, 5.92, 5.69};

bool is_changed_by_step(Kind kind) { return kind == Kind::kParamDelta || kind == Kind::kParamAfter; }

double rms_of(const Difference& difference) {
  return std::sqrt(difference.reference_square / static_cast<double>(difference.elements));
}

// Returns, for each kind that a step changes, the largest jump of any of its tensors in any run.
std::map<Kind, double> largest_jumps(std::span<const RunDifferences> runs) {
  std::map<Kind, double> jumps;
  for (const RunDifferences& run : runs) {
    for (std::size_t i = 0; i < run.pairs.size(); ++i) {
      const Kind kind = run.pairs[i].reference->id.kind;
      const Difference& difference = run.differences[i];
      if (!is_changed_by_step(kind) || difference.reference_square == 0) continue;
      double& largest = jumps[kind];
      largest = std::max(largest, difference.max_abs / rms_of(difference));
    }
  }
  return jumps;
}

// Returns the floor of a single number, within the rounding steps of its own dtype and of the compute dtype.
double scalar_floor(const std::vector<double>& responses, Dtype stored, const EstimateOptions& options) {
  double square = 0;
  for (const double response : responses) square += response * response;
  const double rms = std::sqrt(square / static_cast<double>(responses.size()));
  const double t = kStudent[std::min(responses.size() - kLeastPerturbedRuns, kStudent.size() - 1)];
  const double most = epsilon_of(options.compute_dtype);
  return std::clamp(rms * t / options.margin, std::min(epsilon_of(stored), most), most);
}

using Norms = std::map<std::pair<std::string, std::int32_t>, double>;

// Returns the root mean square of each parameter after the step, by name and iteration.
Norms parameter_norms(const RunDifferences& run) {
  Norms norms;
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const TensorId& id = run.pairs[i].reference->id;
    const Difference& difference = run.differences[i];
    if (id.kind != Kind::kParamAfter || difference.elements == 0) continue;
    norms[{id.name, id.iteration}] = rms_of(difference);
  }
  return norms;
}

// Returns how far one element of a step jumps if the parameter is rounded the other way.
double rounding_jump(const LogicalTensor& step, const Difference& difference, const Norms& parameters) {
  const auto parameter = parameters.find({step.id.name, step.id.iteration});
  if (step.id.kind != Kind::kParamDelta || parameter == parameters.end() || difference.reference_square == 0) return 0;
  const double largest = std::sqrt(2 * std::log(std::max<double>(2, static_cast<double>(difference.elements))));
  return epsilon_of(step.dtype) * largest * parameter->second / rms_of(difference);
}

}  // namespace

double rounding_floor(Kind kind, Dtype stored, Dtype compute) {
  return epsilon_of(kind == Kind::kParam ? stored : compute);
}

std::map<ToleranceKey, double> estimate_floors(std::span<const RunDifferences> perturbed,
                                               const std::map<ToleranceKey, std::vector<double>>& responses,
                                               const EstimateOptions& options) {
  const std::map<Kind, double> jumps = largest_jumps(perturbed);
  const Norms parameters = parameter_norms(perturbed[0]);
  std::map<ToleranceKey, double> floors;
  for (std::size_t i = 0; i < perturbed[0].pairs.size(); ++i) {
    const LogicalTensor& tensor = *perturbed[0].pairs[i].reference;
    if (!is_floating(tensor.dtype)) continue;
    const Kind kind = tensor.id.kind;
    const std::int64_t elements = element_count(tensor.shape);
    double& floor = floors[{kind, tensor.id.name}];
    if (kind == Kind::kScalar && elements == 1) {
      floor = std::max(floor, scalar_floor(responses.at({kind, tensor.id.name}), tensor.dtype, options));
    } else {
      floor = std::max(floor, rounding_floor(kind, tensor.dtype, options.compute_dtype));
    }
    if (!is_changed_by_step(kind) || elements == 0) continue;
    const auto measured = jumps.find(kind);
    const double jump = std::max(measured == jumps.end() ? 0 : measured->second,
                                 rounding_jump(tensor, perturbed[0].differences[i], parameters));
    floor = std::max(floor, jump / std::sqrt(static_cast<double>(elements)));
  }
  return floors;
}

}  // namespace ttrace
