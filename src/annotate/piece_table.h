// The shards of a logical tensor, as a table for people to read.
#pragma once

#include <string>

#include "base/alignment.h"

namespace ttrace {

// A line for each piece that shares elements with `within`, a box of the tensor: its rank and the rank's coordinates,
// the box of the rank's tensor and that of the logical one, its replica and term. After 16 lines the rest is counted.
std::string table_of_pieces(const Trace& trace, const LogicalTensor& tensor, const Box& within);

}  // namespace ttrace
