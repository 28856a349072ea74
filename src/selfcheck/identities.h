// The identities, each with its findings.
#pragma once

#include <vector>

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

const LogicalTensor* find_tensor(const Alignment& alignment, TensorId id, Kind kind, const std::string& name);
// The parameter `name` as the iteration of `id` begins with it; null when it was not recorded.
const LogicalTensor* parameter_at(const Alignment& alignment, const TensorId& id, const std::string& name);

// Whether a copy of it in fp64 can be made: a gigabyte at most.
bool fits_in_memory(const LogicalTensor& tensor);

Finding finding_about(const LogicalTensor& tensor, Verdict verdict, Reason reason, const std::string& what);
// The ranks that hold the element, by its row-major number.
std::vector<std::int32_t> holders_of(const LogicalTensor& tensor, std::int64_t element);

}  // namespace ttrace
