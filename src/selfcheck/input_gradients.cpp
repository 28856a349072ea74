#include "selfcheck/input_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "align/holders.h"
#include "align/passed_on.h"
#include "base/describe.h"
#include "base/tensor_name.h"
#include "merge/values.h"
#include "selfcheck/products.h"

namespace ttrace {
namespace {

constexpr std::int64_t kRowsOfFirstLook = 8;  // of a gradient that may be a residual connection's
constexpr double kClearlyOff = 8;             // thresholds; less may be rounding, or a small gradient of something else
constexpr std::int64_t kFewestElements = 16;  // fewer numbers are a multiple of others too easily
constexpr double kFewElements = 0.01;         // share of a gradient's

std::string_view operands_of(bool is_shared, bool has_residual) {
  if (is_shared && has_residual)
    return "the sum of the gradients of the outputs times the weights, of all linears that were given this input, and "
           "of the gradient that a residual connection passes on";
  if (is_shared)
    return "the sum of the gradients of the outputs times the weights, of all linears that were given this input";
  if (has_residual)
    return "the gradient of its output times its weight, and the gradient that a residual connection passes on";
  return "the gradient of its output times its weight";
}

// The identity matrix, in which each row is the same memory, one element further on.
abft::MatrixView identity_in(std::vector<float>& values, std::int64_t size) {
  values.assign(static_cast<std::size_t>(2 * size - 1), 0);
  values[static_cast<std::size_t>(size - 1)] = 1;
  abft::MatrixView view = abft::row_major(values.data() + (size - 1), Dtype::kFloat32, size, size);
  view.row_stride = -1;
  return view;
}

std::vector<double> sums_of_first_rows(const abft::MatrixView& matrix) {
  const std::int64_t rows = std::min(matrix.rows, kRowsOfFirstLook);
  std::vector<double> row(static_cast<std::size_t>(matrix.cols)), sums;
  for (std::int64_t i = 0; i < rows; ++i) {
    read(matrix, i, 1, 0, matrix.cols, row.data());
    double sum = 0;
    for (const double value : row) sum += value;
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace

void InputGradients::add(const Linear& call) {
  const TensorId& id = call.output->id;
  const LogicalTensor* grad_output = find_tensor(alignment_, id, Kind::kGradOutput, id.name);
  const LogicalTensor* grad_input = find_tensor(alignment_, id, Kind::kGradInput, id.name);
  if (grad_output == nullptr || grad_output->shape != call.output->shape) return;
  if (grad_input == nullptr || grad_input->shape != call.input->shape) return;
  candidates_.push_back({call, grad_output, grad_input});
}

void InputGradients::check() {
  for (const Candidate& candidate : candidates_) {
    const TensorId& id = candidate.call.input->id;
    linears_[{{id.iteration, id.microbatch}, id.name}] = &candidate;
  }
  if (!candidates_.empty()) find_activations();
  std::vector<const Candidate*> disagreeing;
  for (const Candidate& candidate : candidates_) {
    const std::optional<Terms> sum = find_sum(candidate);
    if (!sum) {
      disagreeing.push_back(&candidate);
      continue;
    }
    keep_agreement(candidate, *sum);
    add(judge_agreement(candidate, *sum));
  }
  for (const Candidate* candidate : disagreeing) add(judge_disagreement(*candidate));
}

std::vector<std::string> InputGradients::notes() const {
  std::vector<std::string> notes;
  if (shared_ + with_residual_ > 0) {
    notes.push_back(
        fmt::format("{} gradients of inputs are the sum of what several linears send back, and {} have that of a "
                    "residual connection in them",
                    shared_, with_residual_));
  }
  return notes;
}

void InputGradients::find_activations() {
  for (const auto& [id, tensor] : alignment_.tensors) {
    if ((id.kind != Kind::kInput && id.kind != Kind::kOutput) || id.pass != Pass::kForward) continue;
    if (!is_floating(tensor.dtype)) continue;
    const Kind kind = id.kind == Kind::kInput ? Kind::kGradInput : Kind::kGradOutput;
    const LogicalTensor* gradient = find_tensor(alignment_, id, kind, id.name);
    if (gradient == nullptr || gradient->shape != tensor.shape) continue;
    const Batch batch = {id.iteration, id.microbatch};
    RecordedBits bits = recorded_bits_of(*gradient);
    if (id.kind == Kind::kInput && !is_passed_on(alignment_, gradient->id)) {
      consumers_[{batch, recorded_bits_of(tensor), bits}].push_back(&tensor);
    }
    activations_[batch].push_back({&tensor, gradient, std::move(bits)});
  }
}

const std::vector<const LogicalTensor*>& InputGradients::consumers_of(const Candidate& candidate) const {
  static const std::vector<const LogicalTensor*> kNone;
  const LogicalTensor& input = *candidate.call.input;
  const auto found = consumers_.find(
      {{input.id.iteration, input.id.microbatch}, recorded_bits_of(input), recorded_bits_of(*candidate.grad_input)});
  return found == consumers_.end() ? kNone : found->second;
}

const InputGradients::Activation* InputGradients::find_activation(const TensorId& id, const Batch& batch) const {
  const auto found = activations_.find(batch);
  if (found == activations_.end()) return nullptr;
  for (const Activation& activation : found->second) {
    if (activation.tensor->id.name == id.name && activation.tensor->id.kind == id.kind) return &activation;
  }
  return nullptr;
}

// Nothing where a term was not recorded in the candidate's micro-batch, or has another shape.
std::optional<InputGradients::Sum> InputGradients::sum_of(const Candidate& candidate, const Terms& terms,
                                                          double scale) const {
  const TensorId& id = candidate.call.input->id;
  const Batch batch = {id.iteration, id.microbatch};
  Sum sum;
  const Dtype output = coarser(candidate.grad_input->dtype, candidate.grad_output->dtype);
  sum.rounding = {output, output};
  sum.product.c = sum.matrices.emplace_back(matrix_of(*candidate.grad_input)).view;
  std::int64_t count = 0, converted = 0;
  for (const std::string& name : terms.linears) {
    const auto found = linears_.find({batch, name});
    if (found == linears_.end()) return std::nullopt;
    const Candidate& linear = *found->second;
    abft::MatrixView dy = sum.matrices.emplace_back(matrix_of(*linear.grad_output)).view;
    abft::MatrixView w = sum.matrices.emplace_back(matrix_of(*linear.call.weight)).view;
    if (linear.call.form.weight_is_transposed) w = abft::transposed(w);
    if (dy.rows != sum.product.c.rows || w.cols != sum.product.c.cols) return std::nullopt;
    if (scale != 1) dy = sum.copies.emplace_back(dy, scale).view();
    sum.product.terms.push_back({dy, w});
    if (coarser(linear.call.weight->dtype, output) != linear.call.weight->dtype) converted = 1;
    ++count;
  }
  if (terms.residual) {
    const Activation* residual = find_activation(*terms.residual, batch);
    if (residual == nullptr || residual->gradient->shape != candidate.grad_input->shape) return std::nullopt;
    const abft::MatrixView dz = sum.matrices.emplace_back(matrix_of(*residual->gradient)).view;
    sum.product.terms.push_back({dz, identity_in(sum.identity, dz.cols)});
    ++count;
  }
  // Each product is rounded, and then each addition; so is a weight that is converted to be multiplied.
  sum.roundings = static_cast<double>((count == 1 ? 1 : 1 + count) + converted);
  return sum;
}

abft::Verification InputGradients::verify(const Sum& sum) const {
  return verify_product(sum.product, sum.rounding, options_, sum.roundings);
}

bool InputGradients::has_terms(const Candidate& candidate, const Terms& terms) const {
  const std::optional<Sum> sum = sum_of(candidate, terms);
  return sum && verify(*sum).outcome == abft::Outcome::kVerified;
}

// Returns the Z of a residual connection Z = X + Y whose gradient, beside the linears' products, makes up the
// candidate's.
std::optional<TensorId> InputGradients::find_residual(const Candidate& candidate, const Terms& linears) const {
  const std::optional<Sum> sum = sum_of(candidate, linears);
  if (!sum || candidate.grad_input->shape.empty()) return std::nullopt;
  const std::int64_t rows = std::min(sum->product.c.rows, kRowsOfFirstLook);
  abft::Product first = sum->product;
  first.c = block(first.c, 0, rows, 0, first.c.cols);
  for (abft::Term& term : first.terms) term.a = block(term.a, 0, rows, 0, term.a.cols);
  first.rounding = sum->rounding;
  const abft::LineChecks lines = abft::check_lines(first, {.threshold = {.roundings = 1 + sum->roundings}});
  const TensorId& id = candidate.call.input->id;
  const auto found = activations_.find({id.iteration, id.microbatch});
  const RecordedBits own = recorded_bits_of(*candidate.grad_input);
  const double unit = epsilon_of(sum->rounding.output);
  for (const Activation& activation : found->second) {
    if (activation.gradient->shape != candidate.grad_input->shape || activation.bits == own) continue;
    const Matrix dz = matrix_of(*activation.gradient);
    const std::vector<double> sums = sums_of_first_rows(dz.view);
    bool is_near = true;
    for (std::size_t i = 0; i < sums.size() && is_near; ++i) {
      double size = 0;
      for (std::int64_t col = 0; col < dz.view.cols; ++col) {
        size += std::fabs(element(dz.view, static_cast<std::int64_t>(i), col));
      }
      is_near = std::fabs(lines.rows[i].sum_difference - sums[i]) <= lines.rows[i].threshold + 2 * unit * size;
    }
    if (!is_near || !is_residual(candidate, activation)) continue;
    Terms terms = linears;
    terms.residual = activation.tensor->id;
    if (has_terms(candidate, terms)) return terms.residual;
  }
  return std::nullopt;
}

// Returns whether the tensor is the sum of the candidate's input and of an output that got the same gradient.
bool InputGradients::is_residual(const Candidate& candidate, const Activation& residual) const {
  const LogicalTensor &x = *candidate.call.input, &z = *residual.tensor;
  if (!fits_in_memory(x) || !fits_in_memory(z)) return false;
  Values x_values, z_values;
  for (const Activation& activation : activations_.at({x.id.iteration, x.id.microbatch})) {
    const LogicalTensor& y = *activation.tensor;
    if (y.id.kind != Kind::kOutput || y.shape != x.shape || activation.bits != residual.bits) continue;
    if (y.id.name == z.id.name || !fits_in_memory(y)) continue;
    if (x_values.empty()) {
      x_values = values_of(x);
      z_values = values_of(z);
    }
    const Values y_values = values_of(y);
    const double unit = epsilon_of(coarser(coarser(x.dtype, y.dtype), z.dtype));
    bool is_sum = true;
    for (std::size_t i = 0; i < z_values.size() && is_sum; ++i) {
      const double error = std::fabs(z_values[i] - x_values[i] - y_values[i]);
      is_sum = error <= unit * (std::fabs(x_values[i]) + std::fabs(y_values[i]));
    }
    if (is_sum) return true;
  }
  return false;
}

// Returns the linears that were given the candidate's input, by its bits, and sent back the same gradient.
InputGradients::Terms InputGradients::linears_given_input_of(const Candidate& candidate) const {
  const TensorId& id = candidate.call.input->id;
  Terms terms{{id.name}};
  for (const LogicalTensor* consumer : consumers_of(candidate)) {
    if (linears_.contains({{id.iteration, id.microbatch}, consumer->id.name})) terms.linears.insert(consumer->id.name);
  }
  return terms;
}

// Returns which of its recorded consumers' gradients the candidate's is the sum of; nothing where it is not.
std::optional<InputGradients::Terms> InputGradients::find_sum(const Candidate& candidate) const {
  Terms terms = linears_given_input_of(candidate);
  if (has_terms(candidate, terms)) return terms;
  terms.residual = find_residual(candidate, terms);
  return terms.residual ? std::optional(terms) : std::nullopt;
}

void InputGradients::keep_agreement(const Candidate& candidate, const Terms& sum) {
  const std::string& name = candidate.call.input->id.name;
  std::vector<Terms>& agreed = agreed_[name];
  const auto is_same = [&](const Terms& other) {
    return other.linears == sum.linears && other.residual.has_value() == sum.residual.has_value() &&
           (!sum.residual || other.residual->name == sum.residual->name);
  };
  if (std::none_of(agreed.begin(), agreed.end(), is_same)) agreed.push_back(sum);
  agreed_in_layers_[without_numbers(name)].insert(name);
}

void InputGradients::add(Judgement judgement) {
  if (judgement.sum) {
    shared_ += judgement.sum->is_shared() ? 1 : 0;
    with_residual_ += judgement.sum->residual ? 1 : 0;
  }
  findings_.push_back(std::move(judgement.finding));
}

// Judges a gradient that is the sum. The whole is right on the first copy; another rank's may be wrong.
InputGradients::Judgement InputGradients::judge_agreement(const Candidate& candidate, const Terms& sum) const {
  const std::string operands(operands_of(sum.is_shared(), sum.residual.has_value()));
  if (!sum.is_shared() && !sum.residual) {
    if (auto wrong = local_.check(*candidate.grad_input, {candidate.grad_output, false}, candidate.weight(), nullptr,
                                  operands)) {
      return {std::move(*wrong), sum};
    }
  }
  return {finding_about(*candidate.grad_input, Verdict::kPass, Reason::kNone, fmt::format("is {}", operands)), sum};
}

// Judges a gradient that is not the sum of what its recorded consumers send back. The first that applies:
//
//   the products could not be verified                           not checked
//   the operands differ between ranks, unplaced                  not checked
//   it is a sum that other calls of the module agree with        right
//   other calls agree with one sum, which it differs from        wrong
//   other calls agree with several sums                          not checked
//   few elements are off, and the module of other layers agrees  wrong
//   it is a multiple of the sum                                  wrong
//   each rank has its own product alone                          wrong
//   else                                                         not checked
InputGradients::Judgement InputGradients::judge_disagreement(const Candidate& candidate) const {
  const LogicalTensor& input = *candidate.call.input;
  const Terms terms = linears_given_input_of(candidate);
  const std::optional<Sum> sum = sum_of(candidate, terms);
  if (!sum) return not_checkable(candidate, "the gradients of linears that were given its input have other shapes");
  const abft::Verification faulty = verify(*sum);
  if (faulty.outcome != abft::Outcome::kFaulty) return not_checkable(candidate, faulty.reason);
  if (is_unplaced(input) || is_unplaced(*candidate.grad_output) || is_unplaced(*candidate.grad_input)) {
    return not_checkable(candidate, "its operands differ between ranks, and no annotation says how they lie");
  }
  const std::string open =
      fmt::format("{}; nothing proves that no operation outside of modules was given its input as well",
                  describe(faulty, operands_of(terms.is_shared(), false)));
  if (const auto agreed = agreed_.find(input.id.name); agreed != agreed_.end()) {
    return judge_by_other_calls(candidate, agreed->second, open);
  }
  if (std::optional<Finding> wrong = find_proof(candidate, terms, *sum, faulty)) return {std::move(*wrong)};
  return not_checkable(candidate, open);
}

// Judges by the sums that other calls of the module agree with. `open` says what the gradient is off by.
InputGradients::Judgement InputGradients::judge_by_other_calls(const Candidate& candidate,
                                                               const std::vector<Terms>& agreed,
                                                               const std::string& open) const {
  for (const Terms& others : agreed) {
    if (has_terms(candidate, others)) return judge_agreement(candidate, others);
  }
  const std::optional<Sum> sum = sum_of(candidate, agreed.front());
  if (agreed.size() > 1 || !sum) return not_checkable(candidate, open);
  const abft::Verification other = verify(*sum);
  if (other.outcome != abft::Outcome::kFaulty) return not_checkable(candidate, other.reason);
  return {wrong_by(candidate, agreed.front(), other, "in other calls of the module it is")};
}

// Returns a finding where the fault itself, or the module of other layers, proves the gradient wrong.
std::optional<Finding> InputGradients::find_proof(const Candidate& candidate, const Terms& terms, const Sum& sum,
                                                  const abft::Verification& faulty) const {
  const LogicalTensor& input = *candidate.call.input;
  const bool few = std::all_of(faulty.faults.begin(), faulty.faults.end(),
                               [](const abft::Fault& fault) { return fault.located(); }) &&
                   static_cast<double>(faulty.faults.size()) <=
                       std::max(1.0, kFewElements * static_cast<double>(element_count(input.shape)));
  if (few && agreed_in_layers_.contains(without_numbers(input.id.name))) {
    return wrong_by(candidate, terms, faulty, "all others are right, and so are those of the same module elsewhere");
  }
  if (const std::optional<double> factor = factor_of(sum, candidate, terms)) {
    return wrong_by(candidate, terms, faulty, fmt::format("it is {:.6g} times that", *factor));
  }
  if (terms.is_shared()) return std::nullopt;
  return local_.find_unsummed(*candidate.grad_input, {candidate.grad_output, false}, candidate.weight());
}

// Returns the factor where the gradient is the sum times that, in all rows and columns.
std::optional<double> InputGradients::factor_of(const Sum& sum, const Candidate& candidate, const Terms& terms) const {
  if (sum.product.c.rows * sum.product.c.cols < kFewestElements) return std::nullopt;
  abft::Product product = sum.product;
  product.rounding = sum.rounding;
  double product_of_sums = 0, square = 0, off = 0;
  for (const abft::LineCheck& line : abft::check_lines(product, {.threshold = {.roundings = sum.roundings}}).rows) {
    if (!line.unusable.empty() || line.nonfinite > 0) return std::nullopt;
    product_of_sums += line.checksum * (line.checksum + line.sum_difference);
    square += line.checksum * line.checksum;
    if (line.threshold > 0) off = std::max(off, std::fabs(line.sum_difference) / line.threshold);
  }
  if (square == 0 || off < kClearlyOff) return std::nullopt;
  const double factor = product_of_sums / square;
  const std::optional<Sum> scaled = sum_of(candidate, terms, factor);
  return scaled && verify(*scaled).outcome == abft::Outcome::kVerified ? std::optional(factor) : std::nullopt;
}

// Returns the finding that the gradient is not the sum; `proof` says why it ought to be.
Finding InputGradients::wrong_by(const Candidate& candidate, const Terms& sum, const abft::Verification& faulty,
                                 const std::string& proof) const {
  const LogicalTensor& gradient = *candidate.grad_input;
  const std::string_view operands = operands_of(sum.is_shared(), sum.residual.has_value());
  if (!sum.is_shared() && !sum.residual) {
    if (auto wrong = local_.check(gradient, {candidate.grad_output, false}, candidate.weight(), nullptr, operands)) {
      wrong->message += "; " + proof;
      return std::move(*wrong);
    }
  }
  Finding finding = finding_about(gradient, Verdict::kFail, Reason::kProductDiffers,
                                  fmt::format("{}; {}", describe(faulty, operands), proof));
  const abft::Fault& first = faulty.faults.front();
  if (first.located()) {
    const std::int64_t cols = gradient.shape.empty() ? 1 : gradient.shape.back();
    finding.ranks = ranks_holding(gradient, first.row * cols + first.col);
  }
  return finding;
}

// Says who else was given the input, where that was recorded, in place of `why`.
InputGradients::Judgement InputGradients::not_checkable(const Candidate& candidate, std::string why) const {
  std::set<std::string> others;
  const std::string_view own = TensorName(candidate.call.input->id.name).path;
  const TensorId& id = candidate.call.input->id;
  for (const LogicalTensor* consumer : consumers_of(candidate)) {
    const bool is_linear = linears_.contains({{id.iteration, id.microbatch}, consumer->id.name});
    if (!is_linear && !is_inside(own, TensorName(consumer->id.name).path)) others.insert(consumer->id.name);
  }
  if (!others.empty()) {
    why = fmt::format("its input was given to {}, too: their gradients are added up",
                      comma_list(std::vector<std::string>(others.begin(), others.end())));
  }
  return {finding_about(*candidate.grad_input, Verdict::kUntrusted, Reason::kNotCheckable, why)};
}

}  // namespace ttrace
