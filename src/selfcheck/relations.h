// The relations that `self_check` tests (selfcheck/selfcheck.h). Each function tests one of them on all tensors
// of the alignment, and appends its findings.
#pragma once

#include <vector>

#include "base/lookup.h"
#include "judge/judge.h"
#include "selfcheck/selfcheck.h"

namespace ttrace {

// Returns notes: how many products were checked on each rank alone, and which modules do not add their bias.
std::vector<std::string> check_linears(const Alignment& alignment, const SelfCheckOptions& options,
                                       std::vector<Finding>& findings);
// Returns a note on the attention modules whose arithmetic is not checked at all.
std::vector<std::string> check_attention(const Alignment& alignment, const SelfCheckOptions& options,
                                         std::vector<Finding>& findings);
void check_integer_linears(const Alignment& alignment, std::vector<Finding>& findings);
void check_embeddings(const Alignment& alignment, std::vector<Finding>& findings);
void check_embedding_bags(const Alignment& alignment, std::vector<Finding>& findings);
void check_accumulation(const Alignment& alignment, std::vector<Finding>& findings);
void check_reductions(const Alignment& alignment, std::vector<Finding>& findings);
void check_replicas(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings);

// Returns whether the tensor can be copied in fp64, which takes a gigabyte at most. Tensors of routed tokens cannot.
bool fits_in_memory(const LogicalTensor& tensor);

// Returns whether ranks hold different values of an activation of which neither a rule nor the program said how it lies
// on them: its parts, the terms of its sum, or copies of which some are wrong. What it is cannot be told.
bool is_unplaced(const LogicalTensor& tensor);

}  // namespace ttrace
