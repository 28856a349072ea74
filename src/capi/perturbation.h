// The random factors of a perturbed run, for one rank's part of a tensor.
#pragma once

#include <cstdint>

#include "base/annotation.h"
#include "base/trace.h"
#include "record/trace_writer.h"

namespace ttrace {

// Fills `out` with uniform values in [-1, 1), row-major, for the tensor that this rank knows as `local_id`. An element
// of the logical tensor gets the same value on every rank that holds it, and in a run on one rank: the generator's key
// is `<iteration>/<microbatch or "-">/<kind>/<canonical name>`. Where `annotations` come from no file (empty path) or
// the run has one rank, the local tensor is taken for the logical one. Throws InputError as `locate` does.
void fill_perturbation(const Annotations& annotations, const RunDescription& run, std::uint64_t seed,
                       const TensorId& local_id, const Shape& local_shape, float* out);

}  // namespace ttrace
