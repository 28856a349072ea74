// Writes the messages of findings about values, one line each. The caller puts the tensor's identity before it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "compare/compare.h"
#include "tolerance/coherence.h"

namespace ttrace {

// Describes a difference that exceeds `allowed`, such as `rel_err 0.674, allowed 0.0234 (28.8 times); worst at [3, 17]:
// reference 0.12, candidate 1.5, on rank 2 at [3, 1]; on ranks 2, 3; looks like a factor of 2.000`.
std::string describe_excess(const TensorPair& pair, const Difference& difference, double allowed,
                            std::span<const std::int32_t> ranks);

// Describes a statistic beside the norm, such as `the whole tensor is 1.0078 times the reference's; correct runs:
// within 0.00086 of it; on ranks 0, 1`.
std::string describe_statistic(const TensorPair& pair, const Difference& difference, const JudgedStatistic& judged,
                               std::span<const std::int32_t> ranks);

// Describes the tensors of a group, such as `together the 16 tensors layers.#.mlp.fc1.weight main_grad are 1.0040 times
// the reference's, beside the other tensors of their layers; correct runs: within 0.0009`.
std::string describe_coherence(const ToleranceKey& group, std::size_t tensors, const JudgedStatistic& judged);

// The row-major position of the row that holds the worst element.
std::int64_t row_of_worst(const Difference& difference, const TensorPair& pair);

std::string describe_exact(const Difference& difference, std::span<const std::int32_t> ranks);
std::string describe_nonfinite(const Difference& difference);
// `side` is empty for the candidate's copies, and `in the reference, ` for the reference's.
std::string describe_replicas(std::string_view side, std::span<const std::int32_t> ranks, double rel_err,
                              double allowed);

}  // namespace ttrace
