// The identities, each with its findings.
#pragma once

#include <vector>

#include "align/lookup.h"
#include "ttrace/judge/judge.h"
#include "ttrace/selfcheck/selfcheck.h"

namespace ttrace {

// Returns a note on what was checked on each rank alone; empty where nothing was.
std::string check_linears(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings);
void check_attention(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings);
void check_integer_linears(const Alignment& alignment, std::vector<Finding>& findings);
void check_embeddings(const Alignment& alignment, std::vector<Finding>& findings);
void check_embedding_bags(const Alignment& alignment, std::vector<Finding>& findings);
void check_accumulation(const Alignment& alignment, std::vector<Finding>& findings);
void check_reductions(const Alignment& alignment, std::vector<Finding>& findings);
void check_replicas(const Alignment& alignment, const SelfCheckOptions& options, std::vector<Finding>& findings);

// Whether a copy of it in fp64 can be made: a gigabyte at most.
bool fits_in_memory(const LogicalTensor& tensor);

}  // namespace ttrace
