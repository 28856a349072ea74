// Checks of one trace against itself, without a reference: a module's recorded results must be the function of its
// recorded inputs that the module computes. The relations below are tested on logical tensors, so that the ranks'
// exchange is checked together with their arithmetic: a row-parallel linear's output is the product of its whole input
// and its whole weight, whoever summed it.
//
//   linear, forward        Y = X W^T + b               by checksums (abft/verify.h), first on each rank alone
//   linear, backward       dX = dY W, dW = dY^T X      the same
//   linear, of integers    Y = X W^T                   exactly (abft/quantised_gemm.h)
//   attention              scale Q K^T, P V            as linears, head by head, forward and backward; extreme values
//                                                      show where the fault struck (abft/propagation.h)
//   softmax                rows of P sum to 1          row by row
//   embedding              Y = W[ids]                  row by row; a bag of ids: the rows' sum, mean or largest
//   gradient accumulation  main_grad = c sum of        one factor c for all parameters; the sum is over micro-batches
//                          param_grad
//   reduction over ranks   sum = sum of its terms      element by element
//   replication            all replicas are equal      bit by bit
//   optimizer's step       param_delta, param_after    element by element (step/step.h)
#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "abft/threshold.h"
#include "base/alignment.h"
#include "base/outcome.h"
#include "compare/compare.h"
#include "step/step.h"

namespace ttrace {

struct SelfCheckOptions {
  abft::ThresholdMethod method = abft::ThresholdMethod::kVariance;
  // What products of fp32 round their operands to; a calibrated e_max says it itself.
  abft::Fp32Products fp32_products = abft::Fp32Products::kFull;
  std::int64_t block = 0;              // elements of C that one sum covers (abft/verify.h); 0: whole rows and columns
  int threads = 0;                     // 0: OpenMP's default
  std::map<Dtype, double> e_max = {};  // V-ABFT's, calibrated; keyed by the dtype that product and operands share
  const Trace* trace = nullptr;        // of the alignment; null: its optimizers' steps are not checked
  // Holds what other processes may do in place of this one. Empty or null: this one does it.
  std::function<std::vector<Difference>(std::span<const TensorPair>, const CompareOptions&)> compare = {};
  const Replay* replay = nullptr;
};

// Returns one finding for each tensor and relation: `pass`, `fail` (product-differs, lookup-differs, sum-differs,
// not-finite, replicas-disagree, step-differs, copy-differs), or `untrusted` (not-checkable: a linear whose operands
// were not recorded, or whose module does more than the product; attention that is fused). The alignment's own findings
// are among them. The report's coverage is the share of tensors that some relation was tested on; the others are
// counted in its notes. Throws InputError where there is nothing to check.
Report self_check(const Alignment& alignment, const SelfCheckOptions& options);

}  // namespace ttrace
