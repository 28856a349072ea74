#pragma once

#include "base/trace.h"

namespace ttrace {

// Takes out of the rank what it recorded of rehearsals, and renumbers the chunks and micro-batches behind them.
void leave_out(const Rehearsals& rehearsals, RankTrace& rank);

}  // namespace ttrace
