// Renders the report of a check. JSON is a stable interface: `ttrace-report/5`, described in src/manual/report.md.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/outcome.h"
#include "text/text_style.h"

namespace ttrace {

// Returns the finding that `sentence_of` is about: the first root cause's, or the first wrong one; null where nothing is
// wrong.
const Finding* subject_of(const Report& report);

// Says in a sentence why the verdict is `different`: the sentence of the first root cause, or the message of the first
// wrong tensor. "same" if the verdict is that.
std::string sentence_of(const Report& report);

// The number of findings that a text lists, unless all are asked for.
inline constexpr std::size_t kFindingsShown = 10;

struct TextOptions {
  std::optional<std::size_t> findings = {};  // list so many findings and up to five root causes; absent: a summary
  bool quiet = false;                        // one line
  TextStyle style = {};
};

// Renders for people, with control characters escaped. The summary has the verdict, three root causes at most, one line
// for each group of modules with wrong tensors, and the next command worth typing.
std::string to_text(const Report& report, const TextOptions& options);
std::string to_json(const Report& report);
std::string to_json(const std::vector<Finding>& findings);  // a list, of what the report has under `findings`
// Renders one line for each tensor that was compared or is missing, also if it passed, in execution order. Fields that
// were not measured are empty. `ratio` is rel_err / allowed, norms are Frobenius norms.
std::string to_csv(const Report& report);
// Renders one annotation of a pull request for each root cause, as commands of GitHub's workflows, at the line of the
// program's repository that is known of it.
std::string to_github(const Report& report);
// Renders as SARIF 2.1.0 (OASIS): one result for each root cause, or for the verdict where it has none; a notification
// of a failed execution where that is could-not-look.
std::string to_sarif(const Report& report);

}  // namespace ttrace
