#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "align/holders.h"
#include "align/recorded_bits.h"
#include "base/describe.h"
#include "base/tensor_name.h"
#include "selfcheck/input_gradients.h"
#include "selfcheck/linear_form.h"
#include "selfcheck/local_products.h"
#include "selfcheck/matrices.h"
#include "selfcheck/products.h"
#include "selfcheck/relations.h"

namespace ttrace {
namespace {

// Maps a module's path to the names of its own parameters, without those of modules inside it.
using ParameterNames = std::map<std::string_view, std::set<std::string_view>>;

ParameterNames parameter_names_of(const Alignment& alignment) {
  ParameterNames names;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (id.kind != Kind::kParam && id.kind != Kind::kParamAfter) continue;
    names[owner_of(id.name)].insert(last_component(id.name));
  }
  return names;
}

// Returns why the module may compute more than a product, as far as its class and parameters tell; empty otherwise.
std::string objection_to_module(const std::string& module_class, const std::set<std::string_view>& parameters) {
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

std::string describe_shapes(const Linear& linear) {
  return fmt::format("input {}, weight {} and output {} do not chain", to_string(linear.input->shape),
                     to_string(linear.weight->shape), to_string(linear.output->shape));
}

class Linears {
 public:
  Linears(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings)
      : alignment_(alignment),
        options_(options),
        parameter_names_(parameter_names_of(alignment)),
        local_(options),
        input_gradients_(alignment, options, local_, findings),
        findings_(findings) {}

  std::vector<std::string> notes() const {
    std::vector<std::string> notes;
    if (std::string note = local_.note(); !note.empty()) notes.push_back(std::move(note));
    for (std::string& note : input_gradients_.notes()) notes.push_back(std::move(note));
    if (!without_bias_.empty()) {
      notes.push_back(
          fmt::format("{} modules return their product without adding their bias, as with Megatron-LM's skip_bias_add; "
                      "whether it is added later is not checked: {}",
                      without_bias_.size(), comma_list(without_bias_)));
    }
    return notes;
  }

  // `outputs` are of one module, in one or more calls.
  void check(std::span<const LogicalTensor* const> outputs) {
    std::vector<Linear> calls;
    for (const LogicalTensor* output : outputs) {
      if (auto call = readable_call(*output)) calls.push_back(*call);
    }
    if (calls.empty()) return;
    const std::optional<LinearForm> form = form_of(calls, options_);
    if (!form) {
      for (const Linear& call : calls) refuse(*call.output, "no call of the module is a product of input and weight");
      return;
    }
    if (!form->adds_bias) without_bias_.emplace_back(TensorName(outputs[0]->id.name).path);
    for (Linear& call : calls) {
      call.form = *form;
      chains(call) ? check(call) : refuse(*call.output, describe_shapes(call));
    }
  }

  // After all modules: the gradient of an input is the sum over all linears that were given it.
  void check_input_gradients() { input_gradients_.check(); }

 private:
  // Returns the call if it can be checked; else a finding says why it can't, where the module is one that multiplies.
  std::optional<Linear> readable_call(const LogicalTensor& output) {
    Linear linear;
    linear.output = &output;
    const TensorName name(output.id.name);
    if (!name.member.empty()) {
      if (is_linear_class(output.module_class)) refuse(output, "the module has other outputs: which is the product?");
      return std::nullopt;
    }
    linear.weight = parameter_at(alignment_, output.id, parameter_of(name.path, "weight"));
    linear.bias = parameter_at(alignment_, output.id, parameter_of(name.path, "bias"));
    linear.input = find_tensor(alignment_, output.id, Kind::kInput, output.id.name);
    if (linear.weight == nullptr || linear.input == nullptr) {
      if (is_linear_class(output.module_class)) {
        refuse(output, linear.weight == nullptr ? "its weight was not recorded" : "its input was not recorded");
      }
      return std::nullopt;
    }
    if (linear.weight->shape.size() != 2 || !is_floating(linear.input->dtype)) return std::nullopt;
    if (const std::string why = objection_to(linear); !why.empty()) {
      refuse(output, why);
      return std::nullopt;
    }
    return linear;
  }

  // Returns why the call cannot be checked; empty where it can.
  std::string objection_to(const Linear& linear) {
    const LogicalTensor& output = *linear.output;
    if (linear.input->rows || output.rows) return "its rows are tokens that a router dealt out";
    Linear other = linear;
    other.form.weight_is_transposed = true;
    if (!chains(linear) && !chains(other)) {
      return describe_shapes(linear);
    }
    const std::string_view path = TensorName(output.id.name).path;
    if (std::string why = objection_to_module(output.module_class, parameter_names_[path]); !why.empty()) return why;
    if (!fits_in_memory(output) || !fits_in_memory(*linear.input) || !fits_in_memory(*linear.weight)) {
      return "its operands have more than 2^27 elements";
    }
    return {};
  }

  void check(const Linear& linear) {
    check_forward(linear);
    if (linear.output->id.pass != Pass::kForward) return;
    input_gradients_.add(linear);
    if (TensorName(linear.output->id.name).call.empty()) check_weight_gradient(linear);
  }

  void refuse(const LogicalTensor& tensor, const std::string& why) {
    findings_.push_back(finding_about(tensor, Verdict::kUntrusted, Reason::kNotCheckable, why));
  }

  // Keeps the last weight, since all calls of a module come one after the other: a weight that must be copied is copied
  // once.
  const Matrix& matrix_of_weight(const LogicalTensor& weight) {
    if (weight_ != &weight) {
      weight_ = &weight;
      weight_matrix_ = matrix_of(weight);
    }
    return weight_matrix_;
  }

  void check_forward(const Linear& linear) {
    const std::string_view operands =
        linear.form.adds_bias ? "its input times its weight" : "its input times its weight, without its bias";
    if (found_wrong_on_a_rank(*linear.output, {linear.input}, weight_operand(linear, /*is_transposed=*/true),
                              linear.added_bias(), operands)) {
      return;
    }
    const ForwardProduct forward = forward_product(linear, matrix_of_weight(*linear.weight));
    verify(*linear.output, forward.product, {forward.x.stored, forward.y.stored}, operands);
  }

  // The weight [out, in], or its transpose, however it is stored.
  static Operand weight_operand(const Linear& linear, bool is_transposed) {
    return {linear.weight, is_transposed != linear.form.weight_is_transposed};
  }

  // Returns the gradient named `name` of the same call; null if it was not recorded, or has another shape.
  const LogicalTensor* find_gradient(const Linear& call, Kind kind, const std::string& name, const Shape& shape) const {
    const LogicalTensor* gradient = find_tensor(alignment_, call.output->id, kind, name);
    return gradient != nullptr && gradient->shape == shape ? gradient : nullptr;
  }

  const LogicalTensor* grad_output_of(const Linear& call) const {
    return find_gradient(call, Kind::kGradOutput, call.output->id.name, call.output->shape);
  }

  // Returns all calls of the module, with the operands that each adds to the gradient of the weight; none if those of
  // any call were not recorded. `first` is the first call.
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

  // Returns the name of another parameter that is this weight: the two have the same bits, and so have their gradients.
  std::string tied_to(const Linear& call, const LogicalTensor& gradient) const {
    const RecordedBits weight_bits = recorded_bits_of(*call.weight), bits = recorded_bits_of(gradient);
    TensorId first = gradient.id;
    first.name = {};
    for (auto at = alignment_.tensors.lower_bound(first); at != alignment_.tensors.end(); ++at) {
      TensorId same = at->first;
      same.name = {};
      if (same != first) break;
      if (at->first.name == gradient.id.name || recorded_bits_of(at->second) != bits) continue;
      const LogicalTensor* weight = parameter_at(alignment_, gradient.id, at->first.name);
      if (weight != nullptr && recorded_bits_of(*weight) == weight_bits) return at->first.name;
    }
    return {};
  }

  // The gradient is the sum of a product for each call of the module. It is checked once, with the first call.
  void check_weight_gradient(const Linear& first) {
    const std::string_view module = TensorName(first.output->id.name).path;
    const LogicalTensor* gradient =
        find_gradient(first, Kind::kParamGrad, parameter_of(module, "weight"), first.weight->shape);
    const std::vector<Linear> calls = calls_of(first, module);
    if (gradient == nullptr || calls.empty()) return;
    if (const std::string other = tied_to(first, *gradient); !other.empty()) {
      return refuse(*gradient, fmt::format("its weight is tied to {}: their gradients are added up", printable(other)));
    }
    const std::string_view operands =
        calls.size() == 1 ? "the gradient of the output, transposed, times the input"
                          : "the sum over all calls of the output's gradient, transposed, times the input";
    const bool is_known = std::none_of(calls.begin(), calls.end(), [&](const Linear& call) {
      return is_unplaced(*call.input) || is_unplaced(*grad_output_of(call));
    });
    if (!is_known) return refuse(*gradient, "its operands differ between ranks, and no annotation says how they lie");
    const bool on_ranks = calls.size() == 1;  // what each rank added to a sum over calls was not recorded
    const bool transposed = first.form.weight_is_transposed;
    const Operand dy = {grad_output_of(first), !transposed}, x = {first.input, transposed};
    if (on_ranks && found_wrong_on_a_rank(*gradient, transposed ? x : dy, transposed ? dy : x, nullptr, operands))
      return;
    const Matrix dw = matrix_of(*gradient);
    std::vector<Matrix> matrices;
    abft::Product product{.terms = {}, .c = dw.view};
    for (const Linear& call : calls) {
      const abft::MatrixView of_output = matrices.emplace_back(matrix_of(*grad_output_of(call))).view;
      const abft::MatrixView of_input = matrices.emplace_back(matrix_of(*call.input)).view;
      transposed ? product.terms.push_back({abft::transposed(of_input), of_output})
                 : product.terms.push_back({abft::transposed(of_output), of_input});
    }
    // Each product is rounded, and then each addition; so is an input that is converted to be multiplied.
    const Dtype output = coarser(matrices[0].stored, dw.stored);
    const int converted = coarser(matrices[1].stored, output) == matrices[1].stored ? 0 : 1;
    const double roundings = (calls.size() == 1 ? 1 : 1 + static_cast<double>(calls.size())) + converted;
    verify(*gradient, product, {output, output}, operands, roundings);
  }

  // Checks the product on each rank alone, which names the rank that is wrong. Adds a finding and returns true if one
  // is.
  bool found_wrong_on_a_rank(const LogicalTensor& c, const Operand& a, const Operand& b, const LogicalTensor* bias,
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
  ParameterNames parameter_names_;
  LocalProducts local_;
  InputGradients input_gradients_;
  std::vector<std::string> without_bias_;  // modules that do not add it
  const LogicalTensor* weight_ = nullptr;  // the last weight, whose matrix is `weight_matrix_`
  Matrix weight_matrix_;
  std::vector<Finding>& findings_;
};

}  // namespace

std::vector<std::string> check_linears(const Alignment& alignment, const SelfCheckOptions& options,
                                       std::vector<Finding>& findings) {
  std::vector<const LogicalTensor*> outputs;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (id.kind == Kind::kOutput && is_floating(tensor.dtype)) outputs.push_back(&tensor);
  }
  std::stable_sort(outputs.begin(), outputs.end(), [](const LogicalTensor* a, const LogicalTensor* b) {
    const TensorName of_a(a->id.name), of_b(b->id.name);
    return std::tie(of_a.path, a->id.iteration, a->id.name) < std::tie(of_b.path, b->id.iteration, b->id.name);
  });
  Linears linears(alignment, options, findings);
  for (std::size_t begin = 0, end = 0; begin < outputs.size(); begin = end) {
    const auto path = [&](std::size_t i) { return TensorName(outputs[i]->id.name).path; };
    while (end < outputs.size() && path(end) == path(begin)) ++end;
    linears.check(std::span(outputs).subspan(begin, end - begin));
  }
  linears.check_input_gradients();
  return linears.notes();
}

}  // namespace ttrace
