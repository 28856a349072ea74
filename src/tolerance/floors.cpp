// A tensor's floor is the largest of these.
//
// A perturbation need not reach a tensor at all (a gradient that does not depend on the input), which does not make the
// candidate's rounding of it any smaller. Rounding to the nearest moves x by up to half a step, evenly distributed,
// which is eps |x| / sqrt(12) in root mean square where |x| is just above a power of two, and less elsewhere; eps is
// that of the dtype that computes, or stores the tensor, whichever is coarser. Reference and candidate round each on its own, so that the norm of what lies between
// them is
//
//   floor = eps / sqrt(6)
//
// of the reference's. A norm of few elements is a matter of luck, but the margin is more than sqrt(6), and allows each
// element the whole step that it can be off by: where it is less, the floor is eps / margin. That holds for the dtypes
// whose sums are added up in a wider one. In fp32 they are not: an element is rounded at each of its additions, along
// at least log2(K) of them where K terms are added up in pairs, and floor = eps sqrt(log2(K) / 6). K is the largest
// number of rows or columns of a tensor of the trace.
//
// Over 8 models of tinygpt and 4 programs of frameworks in bf16 (70 correct parallel runs, 88,000 tensors that differ)
// such a floor decides for 9 %, a whole step for 45 %. The largest ratio of measured to allowed is 0.69 where a step
// left 0.53; a step of 64 elements is at 0.86 in either case.
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
// margin^2 of them. Only tensors with few elements notice. A parameter whose whole gradient is rounding, such as the
// bias of attention's keys, to which softmax is blind, says nothing of the others: each of its elements jumps, and
// farther, since its steps are small where its gradient is. (A tiny BERT: 4.6, and 0.014 in all other parameters.) One
// jump need not be measured: the step is added to the
// parameter and rounded, and the difference of parameters is that step. Where it is small, as SGD's in fp32, another
// rounding of one element is a jump of eps * |w|, eps that of the dtype that the step is recorded in, and the largest
// |w| of n normal ones is about sqrt(2 ln n) times their root mean square.
//
// A step may be a step function of its whole gradient: Muon's rounds it to bf16 and orthogonalizes, so that one element
// that rounds otherwise moves all of the update by 2 %, and else nothing does. Its responses are zero in some runs and
// far from it in others, and three may all be zero where every third candidate jumps. Where responses of a group are of
// both sorts, the largest of them is the floor of each of its tensors.
//
// The largest of a few responses is a matter of luck where a tensor has few elements (in one of many, many errors are
// pooled). An element is a sum over very many rounded terms, so that its error is normal. Over n elements and v
// responses, the square of a candidate's error divided by the mean square of the responses follows Fisher's F with n
// and n v degrees of freedom (for one element it is the square of Student's t with v), and
//
//   floor = rms(responses) * f(n, v) / margin         P(F > f(n, v)^2) = kFewLevel
//
// The responses are those of the tensor's group, the same tensor in all layers, unless its own are larger in root mean
// square. A tensor that is rounding alone, such as the bias before a BatchNorm, says nothing of the others of its group.
// From 9 elements on f is below the default margin, which the largest response is allowed in any case. Of three
// responses one number allows 60 times their root mean square, of 48 in 4 layers of 4 micro-batches 4.9.
//
// A sum over tokens that a program rounds token by token is off by more than any perturbed run says (own_sums.cpp): its
// floor is what the reference's own sums are off by.
//
// For a single number that is no tensor (the loss, the gradient's norm) a rounding step of bf16 is a hundred times what
// it really moves by, and hides a wrong loss. Its floor is that of one element, but no less than a rounding step of the
// dtype that the number is stored in, and no more than one of the dtype that computes, or stores it, if that is coarser.
// The norm of all gradients is a long sum: it may be off by what the reference's own is (own_norms.cpp), too.
#include "tolerance/floors.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "base/tensor_name.h"
#include "merge/values.h"
#include "tolerance/quantiles.h"

namespace ttrace {

bool is_changed_by_step(Kind kind) { return kind == Kind::kParamDelta || kind == Kind::kParamAfter; }

namespace {

double rms_of(const Difference& difference) {
  return std::sqrt(difference.reference_square / static_cast<double>(difference.elements));
}

// Returns how far the largest element may have jumped. Of sketches no element is known: its update may have turned its
// sign, which moves it by `turn`, and its difference is no more than that of a cell.
double largest_error(const Difference& difference, double turn) {
  if (!difference.sketch) return difference.max_abs;
  const SketchMeasure& sketch = *difference.sketch;
  return std::min(turn, std::sqrt(sketch.cell_square) * sketch.cell_widening);
}

using Parameter = std::pair<std::string, std::int32_t>;  // name, iteration

// Returns the parameters whose main gradient is rounding alone in this run.
std::set<Parameter> parameters_of_noise(const RunDifferences& run, double margin) {
  std::set<Parameter> noise;
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const TensorId& id = run.pairs[i].reference->id;
    if (id.kind != Kind::kMainGrad || margin * run.differences[i].rel_err() < 1) continue;
    noise.emplace(id.name, id.iteration);
  }
  return noise;
}

// Returns twice the largest update of each parameter.
std::map<Parameter, double> largest_turns(const RunDifferences& run) {
  std::map<Parameter, double> turns;
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const TensorId& id = run.pairs[i].reference->id;
    if (id.kind == Kind::kParamDelta) turns[{id.name, id.iteration}] = 2 * run.differences[i].reference_max_abs;
  }
  return turns;
}

// Returns, for each kind that a step changes, the largest jump of any of its tensors in any run.
std::map<Kind, double> largest_jumps(std::span<const RunDifferences> runs, double margin) {
  std::map<Kind, double> jumps;
  for (const RunDifferences& run : runs) {
    const std::set<Parameter> noise = parameters_of_noise(run, margin);
    const std::map<Parameter, double> turns = largest_turns(run);
    for (std::size_t i = 0; i < run.pairs.size(); ++i) {
      const TensorId& id = run.pairs[i].reference->id;
      const Difference& difference = run.differences[i];
      if (!is_changed_by_step(id.kind) || difference.reference_square == 0) continue;
      if (noise.contains({id.name, id.iteration})) continue;
      const auto turn = turns.find({id.name, id.iteration});
      const double error =
          largest_error(difference, turn == turns.end() ? 2 * difference.reference_max_abs : turn->second);
      double& largest = jumps[id.kind];
      largest = std::max(largest, error / rms_of(difference));
    }
  }
  return jumps;
}

struct Squares {
  double sum = 0, count = 0, largest = 0;
  bool has_zero = false;

  void add(const std::vector<double>& responses) {
    for (const double response : responses) {
      sum += response * response;
      largest = std::max(largest, response);
      has_zero = has_zero || response == 0;
    }
    count += static_cast<double>(responses.size());
  }
  double rms() const { return std::sqrt(sum / count); }
};

// Returns what luck asks for: nothing where the tensor has many elements, or none.
double few_elements_floor(double rms, double responses, std::int64_t elements, double margin) {
  if (elements < 1 || elements > kFewElements) return 0;
  const auto n = static_cast<double>(elements);
  return rms * std::sqrt(fisher_quantile(kFewLevel, n, n * responses)) / margin;
}

bool is_noise(const std::vector<double>& responses, double margin) {
  return std::any_of(responses.begin(), responses.end(), [&](double response) { return margin * response >= 1; });
}

// Returns the responses of groups, without those of tensors that are rounding alone.
std::map<ToleranceKey, Squares> squares_of_groups(const std::map<ToleranceKey, std::vector<double>>& responses,
                                                  double margin) {
  std::map<ToleranceKey, Squares> groups;
  for (const auto& [key, measured] : responses) {
    if (!is_noise(measured, margin)) groups[{key.first, without_numbers(key.second)}].add(measured);
  }
  return groups;
}

// True for a few numbers in fp64 that fp32 holds exactly, and not because they are short: the program computes them in
// fp32, as transformers does the loss of a model in fp64, and no perturbation in fp64 moves them. What it is given or
// begins with may come from fp32 and is computed with in fp64.
bool is_of_fp32(const LogicalTensor& tensor) {
  if (tensor.id.kind != Kind::kScalar && tensor.id.kind != Kind::kOutput) return false;
  constexpr double kShort = 0x1p16;  // times a mantissa of few bits, which is whole
  if (tensor.dtype != Dtype::kFloat64 || tensor.rows || tensor.sketched || element_count(tensor.shape) > kFewElements) {
    return false;
  }
  const Values values = values_of(tensor);
  const auto is_exact = [](double value) { return static_cast<double>(static_cast<float>(value)) == value; };
  const auto is_long = [](double value) {
    int exponent = 0;
    const double scaled = std::frexp(value, &exponent) * kShort;
    return std::isfinite(value) && scaled != std::floor(scaled);
  };
  return std::ranges::all_of(values, is_exact) && std::ranges::any_of(values, is_long);
}

}  // namespace

double largest_luck(double largest, std::int64_t elements, double margin) {
  return few_elements_floor(largest, static_cast<double>(kLeastPerturbedRuns), elements, margin);
}

namespace {

using Norms = std::map<Parameter, double>;

// Returns the root mean square of each parameter after the step.
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

double rounding_floor(Kind kind, Dtype stored, const EstimateOptions& options, std::int64_t terms) {
  // Nothing computes initial parameters: they may differ by a rounding step of the dtype they are stored in.
  if (kind == Kind::kParam || kind == Kind::kBuffer) return epsilon_of(stored);
  // What is stored in less than it was computed in was rounded to that.
  return rounding_of_sums(coarser(stored, options.compute_dtype), options.margin, terms);
}

double rounding_of_sums(Dtype dtype, double margin, std::int64_t terms) {
  const bool is_wide = epsilon_of(dtype) <= epsilon_of(Dtype::kFloat32);
  const double roundings =
      is_wide ? std::max(1.0, std::log2(static_cast<double>(std::max<std::int64_t>(terms, 1)))) : 1;
  return epsilon_of(dtype) * std::max(std::sqrt(roundings / 6), 1 / margin);
}

double summing_epsilon(double epsilon) { return std::min(epsilon, epsilon_of(Dtype::kFloat32)); }

void GradientSizes::add(std::int64_t elements) {
  elements_ += static_cast<double>(elements);
  ++gradients_;
}

double GradientSizes::rounding_of_norm(Dtype dtype) const {
  const double epsilon = epsilon_of(dtype);
  return (summing_epsilon(epsilon) * std::sqrt(elements_) + epsilon * std::sqrt(gradients_)) / 2;
}

std::int64_t most_terms(const RunDifferences& run) {
  std::int64_t most = 1;
  for (const TensorPair& pair : run.pairs) {
    if (is_floating(pair.reference->dtype)) most = std::max(most, stored_tensor(*pair.reference).terms);
  }
  return most;
}

std::map<ToleranceKey, double> largest_step_jumps(std::span<const RunDifferences> perturbed, double margin) {
  const std::map<Kind, double> measured = largest_jumps(perturbed, margin);
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
                                               const EstimateOptions& options, const OwnRoundings& own_sums) {
  const std::int64_t terms = most_terms(perturbed[0]);
  const std::map<ToleranceKey, double> jumps = largest_step_jumps(perturbed, options.margin);
  const std::map<ToleranceKey, Squares> groups = squares_of_groups(responses, options.margin);
  std::map<ToleranceKey, double> floors;
  for (std::size_t i = 0; i < perturbed[0].pairs.size(); ++i) {
    const LogicalTensor& tensor = *perturbed[0].pairs[i].reference;
    if (!is_floating(tensor.dtype)) continue;
    const Kind kind = tensor.id.kind;
    const std::int64_t elements = element_count(tensor.shape);
    const ToleranceKey key = {kind, tensor.id.name};
    double& floor = floors[key];
    Squares own;
    own.add(responses.at(key));
    const auto of_group = groups.find({kind, without_numbers(tensor.id.name)});
    const Squares& group = of_group == groups.end() ? own : of_group->second;
    const double luck = few_elements_floor(std::max(own.rms(), group.rms()), group.count, elements, options.margin);
    if (kind == Kind::kScalar && elements == 1) {
      const double most = epsilon_of(coarser(tensor.dtype, options.compute_dtype));
      floor = std::max(floor, std::clamp(luck, std::min(epsilon_of(tensor.dtype), most), most));
    } else {
      floor = std::max({floor, luck, rounding_floor(kind, tensor.dtype, options, terms)});
    }
    if (is_of_fp32(tensor)) floor = std::max(floor, epsilon_of(Dtype::kFloat32));
    if (const auto sum = own_sums.find(key); sum != own_sums.end()) floor = std::max(floor, sum->second.norm);
    if (!is_changed_by_step(kind) || elements == 0) continue;
    const double jump = jumps.at(key);
    floor = std::max(floor, jump / std::sqrt(static_cast<double>(elements)));
    if (group.has_zero) floor = std::max(floor, group.largest);
  }
  return floors;
}

}  // namespace ttrace
