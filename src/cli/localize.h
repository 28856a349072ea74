// The work of `ttrace localize`: after a failed check, a second run of the candidate in which every module is given the
// reference's values, and what it says of the roots.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/check.h"
#include "ttrace/diagnose/localization.h"

namespace ttrace::cli {

struct LocalizeOptions {
  CheckOptions check;                // the check that failed
  std::filesystem::path output;      // of the second run's trace, new or empty
  std::vector<std::string> command;  // the candidate's; empty: as its trace has it
};

struct Localized {
  Report first;
  SecondPass plan;
  std::optional<Report> second;      // absent where it would show nothing
  std::vector<LocalizedRoot> roots;  // empty without
};

// Runs the candidate once more where that helps. `first` is what the check came to. Throws InputError where the run
// fails or its trace cannot be checked.
Localized localize(const LocalizeOptions& options, Report first);

std::string to_text(const Localized& localized);
// {"schema": "ttrace-localization/1", "verdict", "roots": [...], "first": a report, "second": a report or null}
std::string to_json(const Localized& localized);

}  // namespace ttrace::cli
