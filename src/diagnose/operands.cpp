#include "base/lookup.h"
#include "base/tensor_name.h"
#include "diagnose/hypothesis.h"

namespace ttrace {
namespace {

// Computes the weight's gradient that a linear's backward makes, grad_output^T input: [out, in]. All dimensions but the
// last count as rows.
Values weight_gradient(const Values& grad_output, std::int64_t out, const Values& input, std::int64_t in) {
  const auto rows = static_cast<std::int64_t>(input.size()) / in;
  Values result(static_cast<std::size_t>(out * in));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t o = 0; o < out; ++o) {
      const double factor = grad_output[static_cast<std::size_t>(row * out + o)];
      for (std::int64_t i = 0; i < in; ++i) {
        result[static_cast<std::size_t>(o * in + i)] += factor * input[static_cast<std::size_t>(row * in + i)];
      }
    }
  }
  return result;
}

// The operands that a linear's weight gradient was computed from.
struct Product {
  const LogicalTensor* input = nullptr;        // [.., in]
  const LogicalTensor* grad_output = nullptr;  // [.., out]
  std::int64_t out = 0, in = 0;

  double multiplications() const { return static_cast<double>(element_count(input->shape)) * static_cast<double>(out); }
};

// Returns one side's operands of the suspect, if it is the gradient of the weight of a linear that is called once.
std::optional<Product> find_product(const Suspect& suspect, const Alignment& side) {
  const TensorId& id = suspect.finding.id;
  const Shape& shape = suspect.reference.shape;
  if (id.kind != Kind::kParamGrad || shape.size() != 2 || last_component(id.name) != "weight") return std::nullopt;
  const std::string module(owner_of(id.name));
  if (find_tensor(side, id, Kind::kInput, call_of(module, 1)) != nullptr) return std::nullopt;  // a sum of products
  const Product product{find_tensor(side, id, Kind::kInput, module), find_tensor(side, id, Kind::kGradOutput, module),
                        shape[0], shape[1]};
  if (product.input == nullptr || product.grad_output == nullptr) return std::nullopt;
  const Shape &input = product.input->shape, &grad = product.grad_output->shape;
  if (!is_small(*product.input) || !is_small(*product.grad_output) || input.empty() || grad.empty())
    return std::nullopt;
  const bool fits = input.back() == product.in && grad.back() == product.out && product.in > 0 && product.out > 0 &&
                    element_count(input) / product.in == element_count(grad) / product.out;
  if (!fits) return std::nullopt;
  return product;
}

}  // namespace

std::optional<Diagnosis> stale_operand(const Suspect& suspect) {
  const Alignment& reference = suspect.evidence.reference;
  const std::optional<Product> product = find_product(suspect, reference);
  if (!product) return std::nullopt;
  const Values grad_output = values_of(*product->grad_output);
  double multiplications = 0;
  for (const auto& [other, tensor] : reference.tensors) {
    if (other.kind != Kind::kInput || &tensor == product->input || !is_comparable(tensor, *product->input)) continue;
    multiplications += product->multiplications();
    if (multiplications > kMostMultiplications) return std::nullopt;
    const Values gradient = weight_gradient(grad_output, product->out, values_of(tensor), product->in);
    const std::string what = fmt::format("it was computed with the input of {}, {}",
                                         printable(TensorName(other.name).without_member()), describe_time(other));
    if (auto found = suspect.explained_by(Cause::kStaleOperand, gradient, what)) return found;
  }
  return std::nullopt;
}

std::optional<Diagnosis> reinterpreted_operand(const Suspect& suspect) {
  const std::optional<Product> product = find_product(suspect, suspect.evidence.reference);
  const std::optional<Product> candidate_product = find_product(suspect, suspect.evidence.candidate);
  if (!product || !candidate_product) return std::nullopt;
  const Values input = values_of(*product->input), grad_output = values_of(*product->grad_output);
  double multiplications = 0;
  const auto test = [&](const char* operand, const Values& x, const Values& dy,
                        const std::string& how) -> std::optional<Diagnosis> {
    multiplications += product->multiplications();
    if (multiplications > kMostMultiplications) return std::nullopt;
    return suspect.explained_by(Cause::kReinterpreted, weight_gradient(dy, product->out, x, product->in),
                                fmt::format("it is what comes out when {} is read {}", operand, how));
  };
  auto found = try_readings(
      grad_output, product->grad_output->shape, local_tensors_of(*candidate_product->grad_output),
      [&](const Values& dy, const std::string& how) { return test("the gradient of the output", input, dy, how); });
  if (found) return found;
  return try_readings(input, product->input->shape, local_tensors_of(*candidate_product->input),
                      [&](const Values& x, const std::string& how) { return test("the input", x, grad_output, how); });
}

}  // namespace ttrace
