// The relations that `self_check` tests (ttrace/selfcheck/selfcheck.h). Each function tests one of them on all tensors
// of the alignment, and appends its findings.
#pragma once

#include <vector>

#include "align/lookup.h"
#include "ttrace/judge/judge.h"
#include "ttrace/selfcheck/selfcheck.h"

namespace ttrace {

// Returns notes: how many products were checked on each rank alone, and which modules do not add their bias.
std::vector<std::string> check_linears(const Alignment& alignment, const SelfCheckOptions& options,
                                       std::vector<Finding>& findings);
void check_attention(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings);
void check_integer_linears(const Alignment& alignment, std::vector<Finding>& findings);
void check_embeddings(const Alignment& alignment, std::vector<Finding>& findings);
void check_embedding_bags(const Alignment& alignment, std::vector<Finding>& findings);
void check_accumulation(const Alignment& alignment, std::vector<Finding>& findings);
void check_reductions(const Alignment& alignment, std::vector<Finding>& findings);
void check_replicas(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings);

// Returns whether the tensor can be copied in fp64, which takes a gigabyte at most. Tensors of routed tokens cannot.
bool fits_in_memory(const LogicalTensor& tensor);

}  // namespace ttrace
