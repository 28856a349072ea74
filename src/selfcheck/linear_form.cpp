#include "selfcheck/linear_form.h"

#include <algorithm>
#include <vector>

#include "base/tensor_name.h"
#include "selfcheck/products.h"

namespace ttrace {
namespace {

bool is_matrix_with_columns(const LogicalTensor& tensor, std::int64_t cols) {
  return !tensor.shape.empty() && tensor.shape.back() == cols && is_floating(tensor.dtype) && !tensor.rows;
}

bool same_rows(const LogicalTensor& a, const LogicalTensor& b) {
  return Shape(a.shape.begin(), a.shape.end() - 1) == Shape(b.shape.begin(), b.shape.end() - 1);
}

bool is_product(const Linear& call, const SelfCheckOptions& options) {
  const Matrix weight = matrix_of(*call.weight);
  const ForwardProduct forward = forward_product(call, weight);
  return verify_product(forward.product, {forward.x.stored, forward.y.stored}, options).outcome ==
         abft::Outcome::kVerified;
}

// Returns the forms that the shapes and the class of the module allow, the usual one first.
std::vector<LinearForm> possible_forms(const Linear& call) {
  std::vector<LinearForm> forms;
  for (const bool transposed : {false, true}) {
    for (const bool adds_bias : {true, false}) {
      Linear tried = call;
      tried.form = {adds_bias, transposed};
      const bool is_possible =
          (adds_bias || call.bias != nullptr) && (!transposed || !is_linear_class(call.output->module_class));
      if (is_possible && chains(tried)) forms.push_back(tried.form);
    }
  }
  return forms;
}

}  // namespace

bool is_linear_class(const std::string& module_class) {
  return last_component(module_class).find("Linear") != std::string_view::npos;
}

bool chains(const Linear& call) {
  const Shape& weight = call.weight->shape;
  const std::int64_t in = weight[call.form.weight_is_transposed ? 0 : 1];
  const std::int64_t out = weight[call.form.weight_is_transposed ? 1 : 0];
  const bool bias_fits = call.bias == nullptr || call.bias->shape == Shape{out};
  return is_matrix_with_columns(*call.input, in) && is_matrix_with_columns(*call.output, out) &&
         same_rows(*call.input, *call.output) && bias_fits;
}

ForwardProduct forward_product(const Linear& call, const Matrix& weight) {
  ForwardProduct forward{matrix_of(*call.input), matrix_of(*call.output), {}, {}};
  const abft::MatrixView &x = forward.x.view, &y = forward.y.view;
  forward.product = {.terms = {{x, call.form.weight_is_transposed ? weight.view : abft::transposed(weight.view)}},
                     .c = y};
  if (const LogicalTensor* added = call.added_bias()) {
    forward.bias = matrix_of(*added);
    const abft::MatrixView& row = forward.bias.view;
    forward.product.bias = abft::repeated_row(row.data, row.dtype, y.rows, y.cols);
  }
  return forward;
}

std::optional<LinearForm> form_of(std::span<const Linear> calls, const SelfCheckOptions& options) {
  const LinearForm usual;
  if (calls.empty() || calls[0].output->module_class.get().starts_with("torch.nn.modules.linear.")) return usual;
  const std::vector<LinearForm> forms = possible_forms(calls[0]);
  if (forms.empty()) return usual;
  const bool is_linear = is_linear_class(calls[0].output->module_class);
  if (forms.size() == 1 && is_linear) return forms[0];
  std::optional<LinearForm> several;  // the first of those that a call has at once: its bias is zero
  for (Linear call : calls) {
    std::vector<LinearForm> found;
    for (const LinearForm& form : forms) {
      call.form = form;
      if (is_product(call, options)) found.push_back(form);
    }
    if (found.size() == 1) return found[0];
    if (!found.empty() && !several) several = found[0];
  }
  if (several) return several;
  return is_linear ? std::optional(forms[0]) : std::nullopt;
}

}  // namespace ttrace
