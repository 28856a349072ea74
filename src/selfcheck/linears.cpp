#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "align/holders.h"
#include "selfcheck/identities.h"
#include "selfcheck/local_products.h"
#include "selfcheck/matrices.h"
#include "selfcheck/products.h"
#include "ttrace/diagnose/dataflow.h"

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
using Parameters = std::map<std::string, std::vector<std::string>>;

Parameters parameters_of(const Alignment& alignment) {
  Parameters parameters;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (id.kind != Kind::kParam && id.kind != Kind::kParamAfter) continue;
    const std::size_t dot = id.name.rfind('.');
    if (dot == id.name.npos) continue;
    std::vector<std::string>& names = parameters[id.name.substr(0, dot)];
    if (std::find(names.begin(), names.end(), id.name.substr(dot + 1)) == names.end()) {
      names.push_back(id.name.substr(dot + 1));
    }
  }
  return parameters;
}

// A product and nothing else, as far as its name and parameters tell.
std::string objection_to(const std::string& module_class, const std::vector<std::string>& parameters) {
  for (const std::string& name : parameters) {
    if (name != "weight" && name != "bias")
      return fmt::format("the module has a '{}' too: it computes more than a product", name);
  }
  std::string name = module_class.substr(module_class.rfind('.') + 1);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* word : {"fp8", "float8", "quant", "int8"}) {
    if (name.find(word) != name.npos) return "its operands are rounded before they are multiplied";
  }
  return {};
}

bool is_called_linear(const std::string& module_class) {
  return module_class.substr(module_class.rfind('.') + 1).find("Linear") != module_class.npos;
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
    const std::string& module = output.id.name;
    linear.weight = parameter_at(alignment_, output.id, module + ".weight");
    linear.bias = parameter_at(alignment_, output.id, module + ".bias");
    linear.input = find_tensor(alignment_, output.id, Kind::kInput, module);
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
    if (const std::string why = objection_to(output.module_class, parameters_[module]); !why.empty()) {
      return refuse(output, why);
    }
    if (!fits_in_memory(output) || !fits_in_memory(*linear.input) || !fits_in_memory(*linear.weight)) {
      return refuse(output, "its operands have more than 2^27 elements");
    }
    check_forward(linear);
    if (output.id.pass == Pass::kForward) check_backward(linear);
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

  void check_backward(const Linear& linear) {
    const TensorId& id = linear.output->id;
    const LogicalTensor* grad_output = find_tensor(alignment_, id, Kind::kGradOutput, id.name);
    if (grad_output == nullptr || grad_output->shape != linear.output->shape) return;
    const Matrix dy = matrix_of(*grad_output);
    constexpr std::string_view kInputOperands = "the gradient of its output times its weight";
    constexpr std::string_view kWeightOperands = "the gradient of the output, transposed, times the input";
    const LogicalTensor* grad_input = find_tensor(alignment_, id, Kind::kGradInput, id.name);
    if (grad_input != nullptr && grad_input->shape == linear.input->shape &&
        !is_wrong_on_a_rank(*grad_input, {grad_output}, {linear.weight}, nullptr, kInputOperands)) {
      const Matrix dx = matrix_of(*grad_input);
      const Matrix& w = matrix_of_weight(*linear.weight);
      verify(*grad_input, {.terms = {{dy.view, w.view}}, .c = dx.view}, {dy.stored, dx.stored}, kInputOperands);
    }
    const LogicalTensor* gradient = find_tensor(alignment_, id, Kind::kParamGrad, id.name + ".weight");
    if (gradient != nullptr && gradient->shape == linear.weight->shape &&
        !is_wrong_on_a_rank(*gradient, {grad_output, true}, {linear.input}, nullptr, kWeightOperands)) {
      const Matrix x = matrix_of(*linear.input), dw = matrix_of(*gradient);
      verify(*gradient, {.terms = {{abft::transposed(dy.view), x.view}}, .c = dw.view}, {dy.stored, dw.stored},
             kWeightOperands);
    }
  }

  // Which says more than that the whole is wrong.
  bool is_wrong_on_a_rank(const LogicalTensor& c, const Operand& a, const Operand& b, const LogicalTensor* bias,
                          std::string_view operands) {
    std::optional<Finding> finding = local_.check(c, a, b, bias, operands);
    if (finding) findings_.push_back(std::move(*finding));
    return finding.has_value();
  }

  void verify(const LogicalTensor& tensor, const abft::Product& product, abft::Rounding rounding,
              std::string_view operands) {
    const abft::Verification result = verify_product(product, rounding, options_);
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
    if (first.located()) finding.ranks = holders_of(tensor, first.row * product.c.cols + first.col);
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
