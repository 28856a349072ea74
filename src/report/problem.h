// Lists what a report has to say at lines of the program's source, for services that show it there.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/module_source.h"
#include "base/outcome.h"
#include "report/run_report.h"

namespace ttrace {

struct Problem {
  std::string rule;  // the diagnosis ("unreduced", ...), "no-diagnosis", or the verdict where no tensor is to blame
  std::string who;   // the candidate, as the user named it
  std::string text;  // printable, its lines parted by '\n'
  std::string module;
  std::optional<CodeLine> line;
};

// Returns one problem for each root cause that text shows, one of the verdict where it has none, and none where it is
// `same`.
std::vector<Problem> problems_of(const Report& report);
std::vector<Problem> problems_of(const RunReport& report);

}  // namespace ttrace
