// The random factors of a perturbed run, for one rank's part of a tensor.
#pragma once

#include <cstdint>

#include "ttrace/annotation.h"
#include "ttrace/record/trace_writer.h"
#include "ttrace/trace.h"

namespace ttrace {

// Uniform values in [-1, 1) for the tensor that this rank knows as `local_id`, row-major: those that the
// generator gives the same elements of the logical tensor on any other rank, or in a run on one. The key
// is `<iteration>/<microbatch or "-">/<kind>/<canonical name>`. Where `annotations` come from no file
// (empty path) or the run has one rank, the local tensor is taken for the logical one. Throws InputError
// as `locate` does.
void fill_perturbation(const Annotations& annotations, const RunDescription& run, std::uint64_t seed,
                       const TensorId& local_id, const Shape& local_shape, float* out);

}  // namespace ttrace
