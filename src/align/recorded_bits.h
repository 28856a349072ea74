// Tells recorded tensors of the same bits, without reading them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

// The checksums of what the ranks recorded of the tensor, by rank; each entry once.
using RecordedBits = std::vector<std::pair<std::int32_t, std::uint64_t>>;
RecordedBits recorded_bits_of(const LogicalTensor& tensor);

// True where each rank recorded the same shape and bits of both.
bool have_same_recorded_bits(const LogicalTensor& one, const LogicalTensor& other);

// True for a buffer that each rank has in the same bits before and after the iteration.
bool is_constant_buffer(const Alignment& alignment, const TensorId& id);

// True where some rank's input of a module has the bits of a tensor that the rank holds as well.
bool is_handed_on(const Alignment& alignment, const TensorId& id, const TensorId& input);

}  // namespace ttrace
