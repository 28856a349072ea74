// Collects what a page shows beside a report, from what was read.
#pragma once

#include <string>

#include "base/trace.h"
#include "page/html.h"
#include "tolerance/tolerance.h"

namespace ttrace {

RunFacts facts_of(const Trace& trace, const std::string& directory);
ToleranceFacts facts_of(const ToleranceFile& tolerance);

}  // namespace ttrace
