// The inner loop of sketching: one cell.
#pragma once

#include <cstddef>
#include <span>

#include "sketch/cells.h"

namespace ttrace {

// `chunks` are the cell's, from the first on: each points to kChunkElements elements. The result depends on their
// values alone, with the same bits on every machine.
Cell sketch_chunks(std::span<const std::byte* const> chunks, Dtype dtype);

}  // namespace ttrace
