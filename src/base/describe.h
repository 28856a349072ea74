// Words for findings: ranks, boxes, coordinates.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

// `rank 3`, `ranks 0, 1, 2`; a long list is shortened: `ranks 0, 1, ... (1024 in all)`. -1 reads `unknown`.
std::string describe_ranks(std::span<const std::int32_t> ranks);

std::string describe(const Box& box);  // `[0:4, 8:16]`, as a slice; `[]` of a scalar

std::string comma_list(std::span<const std::string> items);  // `a, b, c`, shortened in the same way

// `tp splits dimension 0`, with the layout where it is not contiguous.
std::string describe_split(const AxisPlacement& axis);

// The layout with its options, as a rule has them: `halo, overlap: 3`.
std::string describe_layout(const AxisPlacement& axis);

bool is_placed_by_shape(const LogicalTensor& tensor);

// The line of annotations that places a tensor so: `fc: {output: {tp: partial}}`, `fc.weight: {tp: {dim: 0, layout:
// ...}}`, where the layout is for the reader to say.
std::string annotation_line(const TensorId& id, std::span<const AxisPlacement> axes);

// What a finding about a wrong tensor has to add where nobody said how it lies, beginning with `; `: how its shape
// placed it, or why that placed it not, and the line of the annotations that would say it. Empty for other tensors.
std::string placing_of(const LogicalTensor& tensor);

}  // namespace ttrace
