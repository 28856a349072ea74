#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "align/describe.h"
#include "align/holders.h"
#include "align/passed_on.h"
#include "align/recorded_bits.h"
#include "selfcheck/linear_form.h"
#include "selfcheck/local_products.h"
#include "selfcheck/matrices.h"
#include "selfcheck/products.h"
#include "selfcheck/relations.h"
#include "ttrace/tensor_name.h"

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
        findings_(findings) {}

  std::vector<std::string> notes() const {
    std::vector<std::string> notes;
    if (std::string note = local_.note(); !note.empty()) notes.push_back(std::move(note));
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

  // Checks the gradients of inputs that several modules were given: the sum of their products. Where a module among
  // them is no linear, the sum is not known.
  void check_shared() {
    for (const Shared& one : shared_) {
      std::set<std::string> missing;
      for (std::string& name : other_consumers(one.linear, *one.grad_input)) missing.insert(std::move(name));
      std::vector<Linear> linears = {one.linear};
      for (const Shared& other : shared_) {
        const TensorId& id = other.linear.input->id;
        const bool same_batch =
            id.iteration == one.linear.input->id.iteration && id.microbatch == one.linear.input->id.microbatch;
        if (same_batch && missing.erase(id.name) > 0) linears.push_back(other.linear);
      }
      if (!missing.empty()) {
        refuse(*one.grad_input, fmt::format("its input was given to {}, too: their gradients are added up",
                                            comma_list(std::vector<std::string>(missing.begin(), missing.end()))));
        continue;
      }
      verify_shared(one, linears);
    }
  }

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
    check_grad_input(linear);
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

  void check_grad_input(const Linear& linear) {
    const LogicalTensor* grad_output = grad_output_of(linear);
    const LogicalTensor* grad_input =
        find_gradient(linear, Kind::kGradInput, linear.output->id.name, linear.input->shape);
    if (grad_output == nullptr || grad_input == nullptr) return;
    // The gradient of a tensor is the sum of what all modules send back that were given it, such as the projections of
    // queries, keys and values.
    if (is_shared(linear, *grad_input)) {
      shared_.push_back({linear, grad_input});
      return;
    }
    constexpr std::string_view kOperands = "the gradient of its output times its weight";
    if (found_wrong_on_a_rank(*grad_input, {grad_output}, weight_operand(linear, /*is_transposed=*/false), nullptr,
                              kOperands)) {
      return;
    }
    const Matrix dy = matrix_of(*grad_output), dx = matrix_of(*grad_input);
    verify(*grad_input, {.terms = {{dy.view, weight_view(linear)}}, .c = dx.view}, {dy.stored, dx.stored}, kOperands);
  }

  abft::MatrixView weight_view(const Linear& linear) {
    const abft::MatrixView& view = matrix_of_weight(*linear.weight).view;
    return linear.form.weight_is_transposed ? abft::transposed(view) : view;
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
    first.name.clear();
    for (auto at = alignment_.tensors.lower_bound(first); at != alignment_.tensors.end(); ++at) {
      TensorId same = at->first;
      same.name.clear();
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
    // Each product is rounded, and then each addition.
    const double roundings = calls.size() == 1 ? 1 : 1 + static_cast<double>(calls.size());
    verify(*gradient, product, {matrices[0].stored, dw.stored}, operands, roundings);
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

  // The consumers of a tensor: modules of which an input is recorded with the same bits, and its gradient as well.
  using ConsumerKey = std::tuple<std::int32_t, std::int32_t, RecordedBits, RecordedBits>;

  std::optional<ConsumerKey> consumer_key(const LogicalTensor& input, const LogicalTensor& grad_input) const {
    RecordedBits bits = recorded_bits_of(input);
    if (bits.empty()) return std::nullopt;
    return ConsumerKey{input.id.iteration, input.id.microbatch, std::move(bits), recorded_bits_of(grad_input)};
  }

  void find_consumers() {
    for (const auto& [id, tensor] : alignment_.tensors) {
      if (id.kind != Kind::kInput || id.pass != Pass::kForward || !is_floating(tensor.dtype)) continue;
      const LogicalTensor* gradient = find_tensor(alignment_, id, Kind::kGradInput, id.name);
      if (gradient == nullptr) continue;
      if (const auto key = consumer_key(tensor, *gradient)) consumers_[*key].push_back(&tensor);
    }
  }

  // Returns the names of the other modules that were given the linear's input, but for those around it and those that
  // only pass it on.
  std::vector<std::string> other_consumers(const Linear& linear, const LogicalTensor& grad_input) {
    if (consumers_.empty()) find_consumers();
    const auto key = consumer_key(*linear.input, grad_input);
    if (!key) return {};
    const std::string_view own = TensorName(linear.input->id.name).path;
    std::vector<std::string> others;
    for (const LogicalTensor* input : consumers_[*key]) {
      const TensorName name(input->id.name);
      const TensorId gradient = find_tensor(alignment_, input->id, Kind::kGradInput, input->id.name)->id;
      if (input == linear.input || is_inside(own, name.path) || is_passed_on(alignment_, gradient)) continue;
      others.push_back(input->id.name);
    }
    return others;
  }

  bool is_shared(const Linear& linear, const LogicalTensor& grad_input) {
    return !other_consumers(linear, grad_input).empty();
  }

  struct Shared {
    Linear linear;
    const LogicalTensor* grad_input;
  };

  void verify_shared(const Shared& one, const std::vector<Linear>& linears) {
    const Matrix dx = matrix_of(*one.grad_input);
    std::vector<Matrix> matrices;
    abft::Product product{.terms = {}, .c = dx.view};
    for (const Linear& linear : linears) {
      const abft::MatrixView dy = matrices.emplace_back(matrix_of(*grad_output_of(linear))).view;
      const abft::MatrixView w = matrices.emplace_back(matrix_of(*linear.weight)).view;
      product.terms.push_back({dy, linear.form.weight_is_transposed ? abft::transposed(w) : w});
    }
    // Each product is rounded, and then each addition.
    verify(*one.grad_input, product, {matrices[0].stored, dx.stored},
           "the sum of the gradients of the outputs times the weights, of all linears that were given this input",
           1 + static_cast<double>(linears.size()));
  }

  const Alignment& alignment_;
  const SelfCheckOptions& options_;
  std::map<ConsumerKey, std::vector<const LogicalTensor*>> consumers_;
  std::vector<Shared> shared_;
  ParameterNames parameter_names_;
  LocalProducts local_;
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
  linears.check_shared();
  return linears.notes();
}

}  // namespace ttrace
