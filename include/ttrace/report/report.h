// The outcome of a check, and its renderings. JSON is a stable interface: `ttrace-report/1`, described in
// README.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ttrace/finding.h"

namespace ttrace {

struct Counts {
  std::int64_t compared = 0;  // pass + fail + untrusted, of tensors on both sides
  std::int64_t pass = 0, fail = 0, untrusted = 0, missing = 0;
};

struct Report {
  std::string reference, candidate;  // directories, as the user gave them
  Counts counts;
  std::vector<Finding> findings;  // every verdict but `pass`, in execution order
  std::vector<std::string> notes;
  bool strict = false;  // untrusted counts as failed

  // Same: something passed, nothing failed, nothing is missing (and, if strict, nothing is untrusted).
  bool same() const;
  // The first finding in execution order that is `fail` or `missing`; null when there is none.
  const Finding* root_cause() const;
};

std::string to_text(const Report& report, std::size_t most_findings);
std::string to_json(const Report& report);
std::string to_junit(const Report& report);

}  // namespace ttrace
