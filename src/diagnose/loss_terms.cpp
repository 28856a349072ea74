#include "diagnose/loss_terms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>

#include "base/tensor_name.h"
#include "diagnose/hypothesis.h"

namespace ttrace {
namespace {

constexpr double kIgnoredLabel = -100;  // the default of PyTorch's losses
constexpr double kCostOfScore = 20;     // in multiplications: that of an exponential, and of reading

double cross_entropy(const Values& scores, double label) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (const double score : scores) total += std::exp(score - largest);
  return largest + std::log(total) - scores[static_cast<std::size_t>(label)];
}

double negative_likelihood(const Values& scores, double label) { return -scores[static_cast<std::size_t>(label)]; }

double square(const Values& x, double y) { return (x[0] - y) * (x[0] - y); }

double distance(const Values& x, double y) { return std::abs(x[0] - y); }

double huber(const Values& x, double y) {
  const double error = std::abs(x[0] - y);
  return error < 1 ? error * error / 2 : error - 0.5;
}

double binary_cross_entropy(const Values& x, double y) {
  return -y * std::max(std::log(x[0]), -100.0) - (1 - y) * std::max(std::log1p(-x[0]), -100.0);
}

double binary_cross_entropy_with_logits(const Values& x, double y) {
  return std::max(x[0], 0.0) - x[0] * y + std::log1p(std::exp(-std::abs(x[0])));
}

// The functions of torch.nn.functional, as they are without further arguments.
constexpr std::array<TermFunction, 2> kOfClasses = {cross_entropy, negative_likelihood};
constexpr std::array<TermFunction, 5> kOfElements = {square, distance, huber, binary_cross_entropy,
                                                     binary_cross_entropy_with_logits};

// Returns the losses, but for their function, that may be of these operands by their shapes.
std::vector<Loss> losses_between(const LogicalTensor& prediction, const LogicalTensor& target) {
  const Shape& shape = prediction.shape;
  std::vector<Loss> losses;
  if (!is_floating(prediction.dtype) || shape.empty()) return losses;
  if (is_floating(target.dtype)) {
    if (shape == target.shape) losses.push_back({.prediction = prediction.id, .target = target.id});
    return losses;
  }
  for (const std::size_t dim : std::set{std::min<std::size_t>(1, shape.size() - 1), shape.size() - 1}) {
    Shape rows = shape;
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(dim));
    if (rows != target.shape) continue;
    for (const bool shifted : {false, true}) {
      losses.push_back({.prediction = prediction.id, .target = target.id, .class_dim = dim, .shifted = shifted});
    }
  }
  return losses;
}

// Returns the tensors that the call took or returned, beside its output `id`.
std::vector<const LogicalTensor*> operands_of(const Alignment& alignment, const TensorId& id) {
  const std::string call = TensorName(id.name).without_member();
  std::vector<const LogicalTensor*> operands;
  for (const auto& [other, tensor] : alignment.tensors) {
    const bool is_of_call = other.iteration == id.iteration && other.microbatch == id.microbatch &&
                            other.pass == id.pass && (other.kind == Kind::kInput || other.kind == Kind::kOutput) &&
                            TensorName(other.name).without_member() == call;
    if (is_of_call && other != id && is_small(tensor)) operands.push_back(&tensor);
  }
  return operands;
}

}  // namespace

std::string_view Loss::unit() const { return class_dim ? "labels that are not ignored" : "elements"; }

Slices Loss::classes_in(const Shape& shape) const {
  if (class_dim) return {shape, *class_dim};
  Shape of_one_class = shape;
  of_one_class.push_back(1);
  return {of_one_class, shape.size()};
}

LossTerms terms_of(const Loss& loss, const LogicalTensor& prediction, const LogicalTensor& target) {
  const Slices classes = loss.classes_in(prediction.shape);
  const Values all_scores = values_of(prediction), targets = values_of(target);
  const auto length = static_cast<std::size_t>(target.shape.empty() ? 1 : target.shape.back());
  LossTerms terms(targets.size());
  Values scores(static_cast<std::size_t>(classes.extent));
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (loss.shifted && i % length == length - 1) continue;
    const double label = targets[loss.shifted ? i + 1 : i];
    if (loss.class_dim && label == kIgnoredLabel) continue;
    if (loss.class_dim && !(label >= 0 && label < static_cast<double>(classes.extent))) return {};
    const auto row = static_cast<std::int64_t>(i);
    const std::int64_t first = row / classes.inner * classes.extent * classes.inner + row % classes.inner;
    for (std::int64_t k = 0; k < classes.extent; ++k) {
      scores[static_cast<std::size_t>(k)] = all_scores[static_cast<std::size_t>(first + k * classes.inner)];
    }
    terms[i] = loss.function(scores, label);
  }
  return terms;
}

std::optional<Loss> find_loss(const Alignment& alignment, const TensorId& id, double value, double most) {
  const std::vector<const LogicalTensor*> operands = operands_of(alignment, id);
  std::optional<Loss> nearest;
  const auto consider = [&](const Loss& loss, double found) {
    if (!(std::abs(found - value) <= most)) return;
    nearest = loss;
    most = std::abs(found - value);
  };
  double multiplications = 0;
  for (const LogicalTensor* prediction : operands) {
    for (const LogicalTensor* target : operands) {
      if (prediction == target) continue;
      for (Loss loss : losses_between(*prediction, *target)) {
        const auto functions = loss.class_dim ? std::span<const TermFunction>(kOfClasses) : kOfElements;
        for (const TermFunction function : functions) {
          multiplications += kCostOfScore * static_cast<double>(element_count(prediction->shape));
          if (multiplications > kMostMultiplications) return std::nullopt;
          loss.function = function;
          LossPart whole;
          for (const std::optional<double>& term : terms_of(loss, *prediction, *target)) whole.add(term);
          loss.is_mean = false;
          if (whole.count > 0) consider(loss, whole.sum);
          loss.is_mean = true;
          consider(loss, whole.mean());
        }
      }
    }
  }
  return nearest;
}

}  // namespace ttrace
