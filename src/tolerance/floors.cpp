// A tensor's floor is the largest of these.
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
// The largest of a few responses is a matter of luck where a tensor has few elements (in one of many, many errors are
// pooled). An element is a sum over very many rounded terms, so that its error is normal. Over n elements and v
// responses, the square of a candidate's error divided by the mean square of the responses follows Fisher's F with n and
// n v degrees of freedom (for one element it is the square of Student's t with v), and
//
//   floor = rms(responses) * f(n, v) / margin         P(F > f(n, v)^2) = 1e-4
//
// From 7 elements on f is below the default margin, which the largest response is allowed in any case. Of three
// responses one number allows 28 times their root mean square: more runs, or micro-batches, make that less.
//
// For a single number that is no tensor (the loss, the gradient's norm) a rounding step of bf16 is a hundred times what
// it really moves by, and hides a wrong loss. Its floor is that of one element, but no less than a rounding step of the
// dtype that the number is stored in, and no more than one of the compute dtype, which is the floor of everything else.
#include "tolerance/floors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

namespace ttrace {
namespace {

// f(n, v) of the essay above, for n = 1 to 6 elements (one a row) and v = 3 to 12 responses. More responses count as 12.
constexpr std::array<std::array<double, 10>, 6> kFisher = {{
    {28.00, 15.54, 11.18, 9.08, 7.88, 7.12, 6.59, 6.21, 5.92, 5.69},
    {7.85, 6.00, 5.15, 4.67, 4.37, 4.16, 4.01, 3.89, 3.80, 3.72},
    {5.04, 4.23, 3.83, 3.58, 3.42, 3.31, 3.23, 3.16, 3.11, 3.07},
    {3.97, 3.48, 3.23, 3.07, 2.96, 2.89, 2.83, 2.79, 2.75, 2.72},
    {3.41, 3.06, 2.88, 2.76, 2.68, 2.63, 2.58, 2.55, 2.52, 2.50},
    {3.06, 2.79, 2.65, 2.55, 2.49, 2.45, 2.41, 2.38, 2.36, 2.34},
}};

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

// Returns what luck asks for: nothing where the tensor has many elements, or none.
double few_elements_floor(const std::vector<double>& responses, std::int64_t elements, double margin) {
  if (elements < 1 || elements > static_cast<std::int64_t>(kFisher.size())) return 0;
  double square = 0;
  for (const double response : responses) square += response * response;
  const double rms = std::sqrt(square / static_cast<double>(responses.size()));
  const auto& of_elements = kFisher[static_cast<std::size_t>(elements - 1)];
  return rms * of_elements[std::min(responses.size() - kLeastPerturbedRuns, of_elements.size() - 1)] / margin;
}

}  // namespace

double largest_luck(const std::vector<double>& samples, std::int64_t elements, double margin) {
  if (samples.empty()) return 0;
  const std::vector<double> least(kLeastPerturbedRuns, *std::max_element(samples.begin(), samples.end()));
  return few_elements_floor(least, elements, margin);
}

namespace {

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

std::map<ToleranceKey, double> largest_step_jumps(std::span<const RunDifferences> perturbed) {
  const std::map<Kind, double> measured = largest_jumps(perturbed);
  const Norms parameters = parameter_norms(perturbed[0]);
  std::map<ToleranceKey, double> jumps;
  for (std::size_t i = 0; i < perturbed[0].pairs.size(); ++i) {
    const LogicalTensor& tensor = *perturbed[0].pairs[i].reference;
    if (!is_floating(tensor.dtype) || !is_changed_by_step(tensor.id.kind)) continue;
    const auto of_kind = measured.find(tensor.id.kind);
    double& jump = jumps[{tensor.id.kind, tensor.id.name}];
    jump = std::max({jump, of_kind == measured.end() ? 0 : of_kind->second,
                     rounding_jump(tensor, perturbed[0].differences[i], parameters)});
  }
  return jumps;
}

std::map<ToleranceKey, double> estimate_floors(std::span<const RunDifferences> perturbed,
                                               const std::map<ToleranceKey, std::vector<double>>& responses,
                                               const EstimateOptions& options) {
  const std::map<ToleranceKey, double> jumps = largest_step_jumps(perturbed);
  std::map<ToleranceKey, double> floors;
  for (std::size_t i = 0; i < perturbed[0].pairs.size(); ++i) {
    const LogicalTensor& tensor = *perturbed[0].pairs[i].reference;
    if (!is_floating(tensor.dtype)) continue;
    const Kind kind = tensor.id.kind;
    const std::int64_t elements = element_count(tensor.shape);
    double& floor = floors[{kind, tensor.id.name}];
    const double luck = few_elements_floor(responses.at({kind, tensor.id.name}), elements, options.margin);
    if (kind == Kind::kScalar && elements == 1) {
      const double most = epsilon_of(options.compute_dtype);
      floor = std::max(floor, std::clamp(luck, std::min(epsilon_of(tensor.dtype), most), most));
    } else {
      floor = std::max({floor, luck, rounding_floor(kind, tensor.dtype, options.compute_dtype)});
    }
    if (!is_changed_by_step(kind) || elements == 0) continue;
    const double jump = jumps.at({kind, tensor.id.name});
    floor = std::max(floor, jump / std::sqrt(static_cast<double>(elements)));
  }
  return floors;
}

}  // namespace ttrace
