// The identities, each with its findings.
#pragma once

#include <vector>

#include "align/lookup.h"
#include "ttrace/judge/judge.h"
#include "ttrace/selfcheck/selfcheck.h"

namespace ttrace {

void check_linears(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings);
void check_embeddings(const Alignment& alignment, std::vector<Finding>& findings);
void check_accumulation(const Alignment& alignment, std::vector<Finding>& findings);
void check_replicas(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings);

// Whether a copy of it in fp64 can be made: a gigabyte at most.
bool fits_in_memory(const LogicalTensor& tensor);

}  // namespace ttrace
