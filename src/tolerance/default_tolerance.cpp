// Says what a tensor may differ by where nobody ran the reference again (`-t default`). The estimate of estimate.cpp
// asks the network; here it is replaced by what a rounding analysis says of any network, which knows no conditioning.
//
// Rounding errors of a long computation behave as independent ones of mean zero, so that k of them add up as sqrt(k),
// not k, with high probability (Higham and Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci.
// Comput. 41, 2019; the rule of thumb is Wilkinson's). Each result that a module hands on is rounded: reference and
// candidate differ by
//
//   unit = eps / sqrt(6)                  a result that is added up in a wider dtype (bf16, fp16), floors.cpp
//   unit = eps sqrt(log2(K) / 6)          in fp32, whose sums round at each addition: log2(K) of them in pairs
//
// of its norm, K the most terms of a sum. Passed on by layers whose condition is about 1, which residual connections
// and norms see to, k results one after another leave
//
//   allowed = kUnmeasuredMargin * unit * sqrt(depth)
//
// where the depth is how many there were: of an activation those recorded up to it in its micro-batch, in order of
// execution; of a gradient those of the whole forward and those that backward has come past since. This counts branches
// as if they followed each other, which errs on the wide side, and does not count what functions between modules round.
// Who records few activations would have a depth too small: then each counts as many as the model has parameters to an
// activation.
//
// Evidence: 98 correct parallel runs of 38 programs (Megatron-core, PyTorch, Hugging Face, DeepSpeed, torchtitan,
// Lightning, JAX, ports between them; fp32, bf16, autocast) are all the same by it, and seven wrong ones (ports with a
// mistake, JAX with wrong collectives) different at the tensor where it begins. Of 28,000 activations and gradients
// that differ, the error divided by unit * sqrt(depth):
//
//                    median     99 %     99.9 %    largest
//   fp32             0.2-0.3    0.6      0.8       0.86
//   bf16             0.15       0.6-0.7  1.1-1.3   1.50, experts that tokens near a tie were sent to; else 0.48
//   JAX, fp32        0.6        0.7-0.9            0.88
//
// The median of JAX is larger because it records a third of the results. Where nothing but whole layers were recorded
// of the others, the largest would be 2.93, if parameters did not count. The margin of 2 leaves 1.3 times the largest:
// with 98 runs and no false alarm, fewer than 3 % are to be expected (95 % confidence). In bf16 a typical activation is
// allowed 0.039 and a typical gradient 0.066, at most 0.093; in fp32 1.6e-6 and 2.7e-6. That is 1.4 and 2.1 (fp32: 2.5
// and 2.4) times the measured tolerance in the median, and up to 5 times: measured ones remain the better answer. A
// constant such as 8.3 % is wider in bf16 but for gradients at depths over 150, and 30,000 times wider in fp32. What
// this cannot know is:
//
// - A model whose condition is far from 1: a sharp softmax, a router near a tie, cancellation in a loss.
// - An optimizer's step: rounding decides the sign of a gradient near zero, and how many are near it nothing says. An
//   update proves nothing here (allowed is 1), unless it is computed again from its own gradient (step/), and a parameter
//   after the step may be off by twice the update, as if that was turned around. What the next iteration computes with
//   such parameters has no closed form at all: a reference of several iterations is refused.
//
// The gradient of a bias or of a norm's weight is a sum over tokens, and may cancel: a key's bias has the exact
// gradient zero. Terms g_t, each off by so much of its norm in any direction, leave that times sqrt(sum ||g_t||^2) in
// the sum, and the terms are about as large as the gradients of the module's results, which the trace holds: the
// tolerance is so many times larger as their norm is larger than the sum's; and no less than what the reference's own
// gradient is off by from its terms, added up in fp64 (own_sums.cpp).
//
// The loss and other single numbers are means of many, and rounding cancels in them: one unit, whatever the depth, but
// no less than a rounding step. The norm of all gradients may be off by what the reference's own is (own_norms.cpp). An
// initial parameter is computed by nobody: a rounding step of its own dtype.
#include "tolerance/default_tolerance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/tensor_name.h"
#include "tolerance/floors.h"

namespace ttrace {
namespace {

using Batch = std::pair<std::int32_t, std::int32_t>;  // iteration and micro-batch

// Tells where the reference's results lie in its order of execution.
class Depths {
 public:
  explicit Depths(const Alignment& reference) {
    std::set<std::string> parameters;
    for (const auto& [id, tensor] : reference.tensors) {
      if (!is_floating(tensor.dtype)) continue;
      if (id.kind == Kind::kParam) parameters.insert(id.name);
      if (id.kind == Kind::kOutput && id.pass == Pass::kForward)
        results_[{id.iteration, id.microbatch}].push_back(&tensor);
    }
    std::size_t most = 0;
    for (auto& [place, results] : results_) {
      std::sort(results.begin(), results.end(), [](const auto* a, const auto* b) { return a->order < b->order; });
      most = std::max(most, results.size());
      for (std::size_t i = 0; i < results.size(); ++i) {
        std::size_t& last = of_module_[std::string(TensorName(results[i]->id.name).path)];
        last = std::max(last, i + 1);
      }
    }
    each_ = most == 0 ? 1 : std::max(1.0, static_cast<double>(parameters.size()) / static_cast<double>(most));
    whole_ = std::max(each_ * static_cast<double>(most), static_cast<double>(parameters.size()));
  }

  double whole() const { return std::max(1.0, whole_); }

  // Returns the depth of an activation.
  double forward(const LogicalTensor& tensor) const {
    const auto found = results_.find({tensor.id.iteration, tensor.id.microbatch});
    if (found == results_.end()) return whole();
    const std::vector<const LogicalTensor*>& results = found->second;
    const auto next = std::lower_bound(results.begin(), results.end(), tensor.order,
                                       [](const auto* result, const auto& order) { return result->order < order; });
    return each_ * static_cast<double>(next - results.begin() + 1);
  }

  // Returns the depth of a gradient: the forward, and the way back to its module, or the one around it that is known.
  double backward(const TensorId& id) const {
    for (std::string_view path = TensorName(id.name).path;; path = owner_of(path)) {
      const auto found = of_module_.find(std::string(path));
      if (found != of_module_.end()) return 2 * whole() - each_ * static_cast<double>(found->second) + 1;
      if (path == kRootModule) return 2 * whole() + 1;
    }
  }

 private:
  std::map<Batch, std::vector<const LogicalTensor*>> results_;  // in order of execution
  std::map<std::string, std::size_t> of_module_;                // the last of its results
  double each_ = 1;                                             // how many results one that was recorded stands for
  double whole_ = 1;                                            // of a forward
};

// Returns how many units a tensor may be off by, before the margin; nothing where it is a matter of signs.
std::optional<double> units_of(const LogicalTensor& tensor, const Depths& depths) {
  switch (tensor.id.kind) {
    case Kind::kInput:
    case Kind::kOutput:
      return std::sqrt(depths.forward(tensor));
    case Kind::kGradOutput:
    case Kind::kGradInput:
    case Kind::kParamGrad:
    case Kind::kMainGrad:
    case Kind::kStepGrad:
      return std::sqrt(depths.backward(tensor.id));
    case Kind::kParamAfter:
    case Kind::kBufferAfter:
      return std::sqrt(depths.whole());
    case Kind::kScalar:
      return 1;
    default:  // an update, and what an optimizer has summed up of updates' gradients
      return std::nullopt;
  }
}

Dtype dtype_of_most(const Alignment& reference) {
  std::map<Dtype, std::int64_t> elements;
  for (const auto& [id, tensor] : reference.tensors) {
    if (is_floating(tensor.dtype)) elements[tensor.dtype] += element_count(tensor.shape);
  }
  if (elements.empty()) return Dtype::kFloat32;
  return std::max_element(elements.begin(), elements.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

void require_one_iteration(const Alignment& reference) {
  if (reference.tensors.empty()) return;
  const std::int32_t first = reference.tensors.begin()->first.iteration;
  const std::int32_t last = reference.tensors.rbegin()->first.iteration;
  if (first == last) return;
  throw InputError(
      fmt::format("-t default: the reference holds the iterations {} to {}, and what an optimizer's step makes of "
                  "rounding has no closed form; expected one iteration, or a file of measured tolerances",
                  first, last));
}

Tolerance default_for(const LogicalTensor& tensor, Dtype compute, std::int64_t terms, const Depths& depths) {
  const Dtype rounded_to = coarser(tensor.dtype, compute);
  const double unit = rounding_of_sums(rounded_to, kDefaultMargin, terms);
  Tolerance tolerance;
  const Kind kind = tensor.id.kind;
  if (kind == Kind::kParam || kind == Kind::kMaster || kind == Kind::kBuffer) {
    tolerance.floor = epsilon_of(tensor.dtype);
  } else if (const auto units = units_of(tensor, depths)) {
    tolerance.floor = tensor.id.kind == Kind::kScalar ? std::max(unit, epsilon_of(rounded_to)) : unit * *units;
  } else {
    tolerance.floor = 1;
  }
  tolerance.allowed = std::min(1.0, kUnmeasuredMargin * tolerance.floor);
  return tolerance;
}

// Holds, for each of the reference's tensors, the sum of its squares.
using SquareNorms = std::map<TensorId, double>;

// Holds the same of the gradients of all results of a module, by its path: in one micro-batch, and (kNoMicrobatch) in
// all.
using TermNorms = std::map<std::tuple<std::int32_t, std::int32_t, std::string>, double>;

TermNorms squares_of_terms(const SquareNorms& squares) {
  TermNorms terms;
  for (const auto& [id, square] : squares) {
    if (id.kind != Kind::kGradOutput) continue;
    const std::string module(TensorName(id.name).path);
    for (const std::int32_t microbatch : {id.microbatch, kNoMicrobatch}) {
      terms[{id.iteration, microbatch, module}] += square;
    }
  }
  return terms;
}

// Holds, for each parameter after its step, the sum of the squares that it differs by.
using SquareErrors = std::map<TensorId, double>;

// Returns what a moving average of the weights may be off by, because the parameter is: no more than that is, since it
// takes a part of it. It has the parameter's name behind that of its own model.
double error_of_followed(const TensorId& id, const SquareErrors& errors) {
  TensorId parameter = id.with_kind(Kind::kParamAfter);
  for (const std::string_view name : suffixes_of(id.name.get())) {
    parameter.name = std::string(name);
    if (const auto found = errors.find(parameter); found != errors.end()) return std::sqrt(found->second);
  }
  return 0;
}

// Returns what is added to the floor.
double widening_of(const LogicalTensor& tensor, const SquareNorms& squares, const TermNorms& terms, double floor) {
  const TensorId& id = tensor.id;
  const double square = squares.at(id);
  if (square == 0) return 0;
  if ((id.kind == Kind::kParamGrad || id.kind == Kind::kMainGrad) && tensor.shape.size() == 1) {
    // A main gradient is the sum over the micro-batches, too, and has none.
    const auto found = terms.find({id.iteration, id.microbatch, std::string(owner_of(TensorName(id.name).path))});
    return found == terms.end() ? 0 : floor * std::max(0.0, std::sqrt(found->second / square) - 1);
  }
  if (id.kind == Kind::kParamAfter) {
    const auto found = squares.find(id.with_kind(Kind::kParamDelta));
    return found == squares.end() ? 0 : 2 * std::sqrt(found->second / square) / kUnmeasuredMargin;  // turned around
  }
  return 0;
}

}  // namespace

double allowed_at(double depth, Dtype dtype, std::int64_t terms) {
  return std::min(1.0, kUnmeasuredMargin * rounding_of_sums(dtype, kDefaultMargin, terms) * std::sqrt(depth));
}

double greatest_depth(const StoredTensors& reference) {
  const auto count = [&](Kind kind) {
    return std::count_if(reference.begin(), reference.end(),
                         [&](const auto& item) { return item.first.first == kind; });
  };
  return 2 * static_cast<double>(std::max({count(Kind::kOutput), count(Kind::kParam), std::ptrdiff_t{1}})) + 1;
}

void widen_by_values(std::span<const TensorPair> pairs, std::span<const Difference> differences, ToleranceFile& file) {
  SquareNorms squares;
  SquareErrors errors;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const TensorId& id = pairs[i].reference->id;
    squares[id] = differences[i].reference_square;
    if (id.kind == Kind::kParamAfter) errors[id] = differences[i].difference_square;
  }
  const TermNorms terms = squares_of_terms(squares);
  std::map<ToleranceKey, double> widest;
  for (const TensorPair& pair : pairs) {
    const LogicalTensor& tensor = *pair.reference;
    const auto found = file.tensors.find({tensor.id.kind, tensor.id.name});
    if (found == file.tensors.end()) continue;
    double& widening = widest[found->first];
    const double norm = std::sqrt(squares.at(tensor.id));
    widening = std::max(widening, tensor.id.kind == Kind::kBufferAfter && norm > 0
                                      ? error_of_followed(tensor.id, errors) / norm
                                      : widening_of(tensor, squares, terms, found->second.floor));
  }
  for (const auto& [key, own] : measure_own_norms(pairs, differences)) {
    if (file.tensors.contains(key)) widest[key] = own.norm;
  }
  for (const auto& [key, widening] : widest) {
    Tolerance& tolerance = file.tensors.at(key);
    tolerance.floor += widening;
    tolerance.allowed = std::min(1.0, kUnmeasuredMargin * tolerance.floor);
  }
}

void widen_by_own_sums(const Alignment& reference, std::span<const TensorPair> pairs,
                       std::span<const Difference> differences, ToleranceFile& file) {
  std::set<std::string> wide;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const TensorId& id = pairs[i].reference->id;
    if (id.kind != Kind::kParamGrad && id.kind != Kind::kMainGrad) continue;
    const auto found = file.tensors.find({id.kind, id.name});
    if (found != file.tensors.end() && differences[i].rel_err() > found->second.allowed) wide.insert(id.name.get());
  }
  if (wide.empty()) return;
  for (const auto& [key, own] : measure_own_sums(reference, [&](const auto& name) { return wide.contains(name); })) {
    const auto found = file.tensors.find(key);
    if (found == file.tensors.end()) continue;
    found->second.floor = std::max(found->second.floor, own.norm);
    found->second.allowed = std::min(1.0, kUnmeasuredMargin * found->second.floor);
  }
}

ToleranceFile default_tolerances(const Alignment& reference, const std::string& compute_dtype) {
  require_one_iteration(reference);
  const auto named = dtype_from_name(compute_dtype);
  const Dtype compute = named && is_floating(*named) ? *named : dtype_of_most(reference);
  std::int64_t terms = 1;
  for (const auto& [key, stored] : stored_tensors(reference)) terms = std::max(terms, stored.terms);
  const Depths depths(reference);

  ToleranceFile file;
  file.path = kDefaultTolerance;
  file.compute_dtype = name_of(compute);
  file.epsilon = epsilon_of(compute);
  file.margin = kUnmeasuredMargin;
  for (const auto& [id, tensor] : reference.tensors) {
    if (!is_floating(tensor.dtype)) continue;
    const Tolerance tolerance = default_for(tensor, compute, terms, depths);
    const auto [found, is_new] = file.tensors.try_emplace({id.kind, id.name}, tolerance);
    if (!is_new && found->second.allowed < tolerance.allowed) found->second = tolerance;
  }
  file.unmeasured = fmt::format(
      "the tolerances are the default and were not measured: {:g} roundings of {} times the square root of the depth "
      "(whole forward: {:.0f}), of the norm alone; `ttrace estimate-tolerance` measures, and sees more",
      kUnmeasuredMargin, name_of(compute), depths.whole());
  file.notes.push_back(file.unmeasured);
  return file;
}

}  // namespace ttrace
