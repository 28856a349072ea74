// Renderings of a check's outcome. JSON is a stable interface: `ttrace-report/2`, described in README.md.
#pragma once

#include <cstddef>
#include <string>

#include "ttrace/outcome.h"

namespace ttrace {

// Why the verdict is not `same`: the first root's sentence, or what is known of the first wrong tensor. "same" where it
// is.
std::string sentence_of(const Report& report);

// For a terminal: at most `most_findings` findings, control characters escaped.
std::string to_text(const Report& report, std::size_t most_findings);
std::string to_json(const Report& report);
// One test case per name and kind, in order of the names.
std::string to_junit(const Report& report);
// One line per tensor that was compared or is missing, passed ones too, in execution order; what was not measured
// is empty. `ratio` is rel_err / allowed, norms are Frobenius norms.
std::string to_csv(const Report& report);

}  // namespace ttrace
