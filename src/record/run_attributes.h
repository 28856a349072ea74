// From what a recorder was told about its run to what the file says.
#pragma once

#include "record/format.h"
#include "ttrace/record/trace_writer.h"

namespace ttrace {

// Throws RecordError (kInvalid) for a description that no reader would accept.
RunAttributes attributes_of(const RunDescription& run);

}  // namespace ttrace
