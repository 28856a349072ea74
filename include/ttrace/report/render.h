// Renders the report of a check. JSON is a stable interface: `ttrace-report/5`, described in src/manual/report.md.
#pragma once

#include <cstddef>
#include <string>

#include "ttrace/outcome.h"

namespace ttrace {

// Says in a sentence why the verdict is `different`: the sentence of the first root cause, or the message of the first
// wrong tensor. "same" if the verdict is that.
std::string sentence_of(const Report& report);

// Renders for a terminal: at most `most_findings` findings, with control characters escaped.
std::string to_text(const Report& report, std::size_t most_findings);
std::string to_json(const Report& report);
// Renders one test case for each tensor name and kind, in order of the names.
std::string to_junit(const Report& report);
// Renders one line for each tensor that was compared or is missing, also if it passed, in execution order. Fields that
// were not measured are empty. `ratio` is rel_err / allowed, norms are Frobenius norms.
std::string to_csv(const Report& report);

}  // namespace ttrace
