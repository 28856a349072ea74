// Checks of one trace against itself, without a reference: what was recorded of a module must be the function of its
// recorded inputs that the module is. Over the logical tensors, so that what ranks exchange is checked with what they
// compute: a row-parallel linear's output is the product of its whole input and its whole weight, whoever summed it.
//
//   linear, forward       Y = X W^T + b               verified by checksums (ttrace/abft/verify.h), first on each rank
//   linear, backward      dX = dY W, dW = dY^T X      the same
//   linear, of integers   Y = X W^T                   exactly (ttrace/abft/quantised_gemm.h)
//   attention             scale Q K^T, P V            as linears, head by head, and backward
//   softmax               rows of P sum to 1          extreme values by where the fault struck
//   (ttrace/abft/propagation.h) embedding             Y = W[ids]                  row by row; bags of them: sum, mean
//   or largest gradient accumulation main_grad = sum over micro-batches of param_grad, up to one factor for all
//   parameters reduction over ranks  sum of the terms before it  element by element replication           copies on
//   several ranks have the same bits
#pragma once

#include <map>

#include "ttrace/abft/threshold.h"
#include "ttrace/align/shard_mapping.h"
#include "ttrace/outcome.h"

namespace ttrace {

struct SelfCheckOptions {
  abft::ThresholdMethod method = abft::ThresholdMethod::kVariance;
  int threads = 0;                     // 0: OpenMP's default
  std::map<Dtype, double> e_max = {};  // of V-ABFT, by the dtype of a product and its operands, as calibrated
};

// One finding for each tensor and identity: `pass`, `fail` (product-differs, lookup-differs, sum-differs, not-finite,
// replicas-disagree), or `untrusted` (not-checkable: a linear whose operands were not recorded, or whose module does
// more than the product; attention that is fused). The alignment's own findings are among them. The report's coverage
// is the share of tensors that some identity holds to account; the others are counted in its notes. Throws InputError
// where there is nothing to check.
Report self_check(const Alignment& alignment, const SelfCheckOptions& options);

}  // namespace ttrace
