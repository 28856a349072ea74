// Checks the gradients of linears' inputs: dX = dY W.
//
// The gradient that a trace has of a tensor is its total one: the sum of what all its consumers send back. For the
// input of a linear that is dY W alone only where nothing else was given the tensor, and no trace says what the program
// did with a tensor outside of modules. So the consumers are found as far as they were recorded:
//
//   linears          those whose recorded inputs have the same bits, and whose gradients as well: their products are
//                    terms of one sum, sum over i of dY_i W_i (queries, keys and values; gate and up)
//   a residual       Z = X + Y with a recorded Y, such as Z = X + linear(X): an addition sends its own gradient to both,
//   connection       so that dX = sum of dY_i W_i + dZ. It counts where Z is X + Y, and Y's gradient has dZ's bits
//
// A sum that agrees is proved right, whoever else was given the tensor. One that does not is wrong only where that is
// proved as well; else the gradient is not checked, and the finding says what is left over:
//
//   another call     of the same module, in another micro-batch or iteration, agrees: it has no further consumers
//   a few elements   are wrong and all others right, and the same module of other layers agrees
//   a multiple       the gradient is a number times the sum, in all rows and columns: 0, or 1/2
//   one rank's part  the gradient on each rank is the rank's own product alone, which had to be summed over ranks
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "align/recorded_bits.h"
#include "selfcheck/attention_heads.h"
#include "selfcheck/linear_form.h"
#include "selfcheck/local_products.h"
#include "selfcheck/relations.h"

namespace ttrace {

class InputGradients {
 public:
  InputGradients(const Alignment& alignment, const SelfCheckOptions& options, LocalProducts& local,
                 std::vector<Finding>& findings)
      : alignment_(alignment), options_(options), local_(local), findings_(findings) {}

  // `call` is a forward call; its gradients may not have been recorded.
  void add(const Linear& call);
  // Adds a finding for each gradient. Call it once, after all calls were added.
  void check();
  // Counts the gradients that are sums of several linears' products, or have a residual connection's among them.
  std::vector<std::string> notes() const;

 private:
  // A recorded forward activation with its gradient.
  struct Activation {
    const LogicalTensor *tensor, *gradient;
    RecordedBits bits;  // of the gradient
  };
  // A gradient to check, and its module's call.
  struct Candidate {
    Linear call;
    const LogicalTensor *grad_output, *grad_input;

    Operand weight() const { return {call.weight, call.form.weight_is_transposed}; }
  };
  // Holds what a gradient is the sum of: linears, by the names of their inputs, and a residual connection's gradient.
  struct Terms {
    std::set<std::string> linears;
    std::optional<TensorId> residual = std::nullopt;  // of the sum Z; its iteration and micro-batch say nothing

    bool is_shared() const { return linears.size() > 1; }
  };
  struct Judgement {
    Finding finding;
    std::optional<Terms> sum = std::nullopt;  // that the gradient is, as a whole
  };
  // A product of terms, with the memory that it is of.
  struct Sum {
    std::vector<Matrix> matrices;
    std::vector<ScaledCopy> copies;
    std::vector<float> identity;
    abft::Product product;
    abft::Rounding rounding;
    double roundings = 1;
    bool whole = true;  // all terms were recorded
  };
  using Batch = std::pair<std::int32_t, std::int32_t>;  // iteration, micro-batch
  // The consumers of a tensor: modules of which an input is recorded with the same bits, and its gradient as well.
  using ConsumerKey = std::tuple<Batch, RecordedBits, RecordedBits>;

  void find_activations();
  const std::vector<const LogicalTensor*>& consumers_of(const Candidate& candidate) const;
  const Activation* find_activation(const TensorId& id, const Batch& batch) const;
  std::optional<Sum> sum_of(const Candidate& candidate, const Terms& terms, double scale = 1) const;
  abft::Verification verify(const Sum& sum) const;
  bool has_terms(const Candidate& candidate, const Terms& terms) const;
  std::optional<TensorId> find_residual(const Candidate& candidate, const Terms& linears) const;
  bool is_residual(const Candidate& candidate, const Activation& residual) const;
  Terms linears_given_input_of(const Candidate& candidate) const;
  std::optional<Terms> find_sum(const Candidate& candidate) const;
  void keep_agreement(const Candidate& candidate, const Terms& sum);
  void add(Judgement judgement);
  Judgement judge_agreement(const Candidate& candidate, const Terms& sum) const;
  Judgement judge_disagreement(const Candidate& candidate) const;
  Judgement judge_by_other_calls(const Candidate& candidate, const std::vector<Terms>& agreed,
                                 const std::string& open) const;
  std::optional<Finding> find_proof(const Candidate& candidate, const Terms& terms, const Sum& sum,
                                    const abft::Verification& faulty) const;
  std::optional<double> factor_of(const Sum& sum, const Candidate& candidate, const Terms& terms) const;
  Finding wrong_by(const Candidate& candidate, const Terms& sum, const abft::Verification& faulty,
                   const std::string& proof) const;
  Judgement not_checkable(const Candidate& candidate, std::string why) const;

  const Alignment& alignment_;
  const SelfCheckOptions& options_;
  LocalProducts& local_;
  std::vector<Finding>& findings_;
  std::vector<Candidate> candidates_;
  std::map<std::pair<Batch, std::string>, const Candidate*> linears_;   // by the input's name
  std::map<ConsumerKey, std::vector<const LogicalTensor*>> consumers_;  // their inputs
  std::map<Batch, std::vector<Activation>> activations_;
  std::map<std::string, std::vector<Terms>> agreed_;               // by the input's name: sums that agreed in some call
  std::map<std::string, std::set<std::string>> agreed_in_layers_;  // inputs, by their names without numbers
  std::int64_t shared_ = 0, with_residual_ = 0;
};

}  // namespace ttrace
