#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "align/holders.h"
#include "selfcheck/identities.h"
#include "selfcheck/local_products.h"
#include "selfcheck/matrices.h"
#include "selfcheck/products.h"
#include "ttrace/tensor_name.h"

namespace ttrace {
namespace {

// What was recorded of one call of a module with a matrix for its weight.
struct Linear {
  const LogicalTensor* input = nullptr;
  const LogicalTensor* output = nullptr;
  const LogicalTensor* weight = nullptr;  // [out, in]
  const LogicalTensor* bias = nullptr;    // may be null
};

bool is_matrix_of(const LogicalTensor& tensor, std::int64_t last) {
  return !tensor.shape.empty() && tensor.shape.back() == last && is_floating(tensor.dtype) && !tensor.rows;
}

bool same_rows(const LogicalTensor& a, const LogicalTensor& b) {
  return Shape(a.shape.begin(), a.shape.end() - 1) == Shape(b.shape.begin(), b.shape.end() - 1);
}

// By module: the names of its own parameters, not of modules inside it.
using Parameters = std::map<std::string_view, std::set<std::string_view>>;

Parameters parameters_of(const Alignment& alignment) {
  Parameters parameters;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (id.kind != Kind::kParam && id.kind != Kind::kParamAfter) continue;
    parameters[owner_of(id.name)].insert(last_component(id.name));
  }
  return parameters;
}

// A product and nothing else, as far as its name and parameters tell.
std::string objection_to(const std::string& module_class, const std::set<std::string_view>& parameters) {
  for (const std::string_view name : parameters) {
    if (name != "weight" && name != "bias")
      return fmt::format("the module has a '{}' too: it computes more than a product", name);
  }
  std::string name(last_component(module_class));
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* word : {"fp8", "float8", "quant", "int8"}) {
    if (name.find(word) != name.npos) return "its operands are rounded before they are multiplied";
  }
  return {};
}

bool is_called_linear(const std::string& module_class) {
  return last_component(module_class).find("Linear") != std::string_view::npos;
}

class Linears {
 public:
  Linears(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings)
      : alignment_(alignment),
        options_(options),
        parameters_(parameters_of(alignment)),
        local_(options),
        findings_(findings) {}

  std::string note() const { return local_.note(); }

  void check(const LogicalTensor& output) {
    Linear linear;
    linear.output = &output;
    const TensorName name(output.id.name);
    if (!name.member.empty()) {
      if (is_called_linear(output.module_class)) refuse(output, "the module has other outputs: which is the product?");
      return;
    }
    linear.weight = parameter_at(alignment_, output.id, parameter_of(name.path, "weight"));
    linear.bias = parameter_at(alignment_, output.id, parameter_of(name.path, "bias"));
    linear.input = find_tensor(alignment_, output.id, Kind::kInput, output.id.name);
    if (linear.weight == nullptr || linear.input == nullptr) {
      if (is_called_linear(output.module_class)) {
        refuse(output, linear.weight == nullptr ? "its weight was not recorded" : "its input was not recorded");
      }
      return;
    }
    if (linear.weight->shape.size() != 2 || !is_floating(linear.input->dtype)) return;
    if (linear.input->rows || output.rows) return refuse(output, "its rows are tokens that a router dealt out");
    if (!chains(linear)) {
      return refuse(output,
                    fmt::format("input {}, weight {} and output {} do not chain", to_string(linear.input->shape),
                                to_string(linear.weight->shape), to_string(output.shape)));
    }
    if (const std::string why = objection_to(output.module_class, parameters_[name.path]); !why.empty()) {
      return refuse(output, why);
    }
    if (!fits_in_memory(output) || !fits_in_memory(*linear.input) || !fits_in_memory(*linear.weight)) {
      return refuse(output, "its operands have more than 2^27 elements");
    }
    check_forward(linear);
    if (output.id.pass != Pass::kForward) return;
    check_grad_input(linear);
    if (name.call.empty()) check_weight_gradient(linear);
  }

 private:
  static bool chains(const Linear& linear) {
    const Shape& weight = linear.weight->shape;
    const bool bias_fits = linear.bias == nullptr || linear.bias->shape == Shape{weight[0]};
    return is_matrix_of(*linear.input, weight[1]) && is_matrix_of(*linear.output, weight[0]) &&
           same_rows(*linear.input, *linear.output) && bias_fits;
  }

  void refuse(const LogicalTensor& tensor, const std::string& why) {
    findings_.push_back(finding_about(tensor, Verdict::kUntrusted, Reason::kNotCheckable, why));
  }

  // All calls of a module are checked one after the other: a weight that must be copied is copied once for them.
  const Matrix& matrix_of_weight(const LogicalTensor& weight) {
    if (weight_ != &weight) {
      weight_ = &weight;
      weight_matrix_ = matrix_of(weight);
    }
    return weight_matrix_;
  }

  void check_forward(const Linear& linear) {
    constexpr std::string_view kOperands = "its input times its weight";
    if (is_wrong_on_a_rank(*linear.output, {linear.input}, {linear.weight, true}, linear.bias, kOperands)) return;
    const Matrix x = matrix_of(*linear.input), y = matrix_of(*linear.output);
    const Matrix& w = matrix_of_weight(*linear.weight);
    abft::Product product{.terms = {{x.view, abft::transposed(w.view)}}, .c = y.view};
    Matrix bias;
    if (linear.bias != nullptr) {
      bias = matrix_of(*linear.bias);
      product.bias = abft::repeated_row(bias.view.data, bias.view.dtype, y.view.rows, y.view.cols);
    }
    verify(*linear.output, product, {x.stored, y.stored}, kOperands);
  }

  // Of what a call of the module worked on; null where it was not recorded, or has another shape.
  const LogicalTensor* find_gradient(const Linear& call, Kind kind, const std::string& name, const Shape& shape) const {
    const LogicalTensor* gradient = find_tensor(alignment_, call.output->id, kind, name);
    return gradient != nullptr && gradient->shape == shape ? gradient : nullptr;
  }

  const LogicalTensor* grad_output_of(const Linear& call) const {
    return find_gradient(call, Kind::kGradOutput, call.output->id.name, call.output->shape);
  }

  void check_grad_input(const Linear& linear) {
    constexpr std::string_view kOperands = "the gradient of its output times its weight";
    const LogicalTensor* grad_output = grad_output_of(linear);
    const LogicalTensor* grad_input =
        find_gradient(linear, Kind::kGradInput, linear.output->id.name, linear.input->shape);
    if (grad_output == nullptr || grad_input == nullptr) return;
    if (is_wrong_on_a_rank(*grad_input, {grad_output}, {linear.weight}, nullptr, kOperands)) return;
    const Matrix dy = matrix_of(*grad_output), dx = matrix_of(*grad_input);
    const Matrix& w = matrix_of_weight(*linear.weight);
    verify(*grad_input, {.terms = {{dy.view, w.view}}, .c = dx.view}, {dy.stored, dx.stored}, kOperands);
  }

  // All calls of the module that `first` is the first of, with operands that the gradient of its weight is made of; none
  // where those of one were not recorded.
  std::vector<Linear> calls_of(const Linear& first, std::string_view module) const {
    std::vector<Linear> calls;
    for (const LogicalTensor* output : find_calls(alignment_, first.output->id, Kind::kOutput, module)) {
      Linear& call = calls.emplace_back(first);
      call.output = output;
      call.input = find_tensor(alignment_, output->id, Kind::kInput, output->id.name);
      const bool usable = call.input != nullptr && chains(call) && fits_in_memory(*call.input) &&
                          fits_in_memory(*output) && grad_output_of(call) != nullptr;
      if (!usable) return {};
    }
    return calls;
  }

  // Every call of the module adds a product to the gradient, which is checked with the first one.
  void check_weight_gradient(const Linear& first) {
    const std::string_view module = TensorName(first.output->id.name).path;
    const LogicalTensor* gradient =
        find_gradient(first, Kind::kParamGrad, parameter_of(module, "weight"), first.weight->shape);
    const std::vector<Linear> calls = calls_of(first, module);
    if (gradient == nullptr || calls.empty()) return;
    const std::string_view operands =
        calls.size() == 1 ? "the gradient of the output, transposed, times the input"
                          : "the sum over all calls of the output's gradient, transposed, times the input";
    const bool on_ranks = calls.size() == 1;  // what a rank added to a sum over calls is not known
    if (on_ranks && is_wrong_on_a_rank(*gradient, {grad_output_of(first), true}, {first.input}, nullptr, operands)) {
      return;
    }
    const Matrix dw = matrix_of(*gradient);
    std::vector<Matrix> matrices;
    abft::Product product{.terms = {}, .c = dw.view};
    for (const Linear& call : calls) {
      const Matrix& dy = matrices.emplace_back(matrix_of(*grad_output_of(call)));
      const abft::MatrixView dy_transposed = abft::transposed(dy.view);
      const Matrix& x = matrices.emplace_back(matrix_of(*call.input));
      product.terms.push_back({dy_transposed, x.view});
    }
    // The products are rounded, and then their sum.
    const double roundings = calls.size() == 1 ? 1 : 1 + static_cast<double>(calls.size());
    verify(*gradient, product, {matrices[0].stored, dw.stored}, operands, roundings);
  }

  // Which says more than that the whole is wrong.
  bool is_wrong_on_a_rank(const LogicalTensor& c, const Operand& a, const Operand& b, const LogicalTensor* bias,
                          std::string_view operands) {
    std::optional<Finding> finding = local_.check(c, a, b, bias, operands);
    if (finding) findings_.push_back(std::move(*finding));
    return finding.has_value();
  }

  void verify(const LogicalTensor& tensor, const abft::Product& product, abft::Rounding rounding,
              std::string_view operands, double roundings = 1) {
    const abft::Verification result = verify_product(product, rounding, options_, roundings);
    switch (result.outcome) {
      case abft::Outcome::kVerified:
        findings_.push_back(finding_about(tensor, Verdict::kPass, Reason::kNone, fmt::format("is {}", operands)));
        return;
      case abft::Outcome::kNotCheckable:
        return refuse(tensor, result.reason);
      case abft::Outcome::kFaulty:
        break;
    }
    Finding finding = finding_about(tensor, Verdict::kFail, Reason::kProductDiffers, describe(result, operands));
    const abft::Fault& first = result.faults.front();
    if (first.located()) finding.ranks = ranks_holding(tensor, first.row * product.c.cols + first.col);
    findings_.push_back(std::move(finding));
  }

  const Alignment& alignment_;
  const SelfCheckOptions& options_;
  Parameters parameters_;
  LocalProducts local_;
  const LogicalTensor* weight_ = nullptr;  // the last one, as `weight_matrix_`
  Matrix weight_matrix_;
  std::vector<Finding>& findings_;
};

}  // namespace

std::string check_linears(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings) {
  std::vector<const LogicalTensor*> outputs;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (id.kind == Kind::kOutput && is_floating(tensor.dtype)) outputs.push_back(&tensor);
  }
  std::stable_sort(outputs.begin(), outputs.end(), [](const LogicalTensor* a, const LogicalTensor* b) {
    return std::tie(a->id.iteration, a->id.name) < std::tie(b->id.iteration, b->id.name);
  });
  Linears linears(alignment, options, findings);
  for (const LogicalTensor* output : outputs) linears.check(*output);
  return linears.note();
}

}  // namespace ttrace
