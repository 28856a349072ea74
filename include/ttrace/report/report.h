// The outcome of a check, and its renderings. JSON is a stable interface: `ttrace-report/1`, described in
// README.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ttrace/finding.h"
#include "ttrace/waiver.h"

namespace ttrace {

// Each tensor counts once, by the worst of its findings (fail, missing, untrusted, pass); a finding about
// ranks counts like a tensor.
struct Counts {
  std::int64_t compared = 0;  // pass + fail + untrusted
  std::int64_t pass = 0, fail = 0, untrusted = 0, missing = 0;

  void add(Verdict verdict);
};

// A whole iteration or micro-batch that one side lacks: one line for people instead of thousands.
struct MissingGroup {
  Reason reason = Reason::kMissingInCandidate;
  std::int32_t iteration = 0;
  std::optional<std::int32_t> microbatch;  // absent: the whole iteration
  std::int64_t tensors = 0;
};

// A wrong tensor that nothing wrong explains (ttrace/diagnose/).
struct RootCause {
  std::size_t finding = 0;     // in the report's `findings`
  std::string module;          // that it was seen at
  std::int64_t repeated = 0;   // of further micro-batches and iterations in which it is a root as well
  std::int64_t explained = 0;  // wrong tensors that follow from it
  bool examined = false;       // whether anybody asked what its error looks like; text shows these
  std::string diagnosis;       // a word of `Cause`; empty: nothing known explains the error
  double residual = 0;         // of the diagnosis: ||candidate - expected|| / ||expected||
  std::string sentence;
  std::string standing;  // a word of `Standing` (ttrace/diagnose/localization.h); empty: no second run tells
};

// A finding that would have kept the verdict from `same`.
struct WaivedFinding {
  Finding finding;
  Waiver waiver;
};

struct Report {
  std::string reference, candidate;  // directories, as the user gave them
  Counts counts;
  std::int64_t waived = 0;        // compared + missing + waived = tensors of either side + findings about ranks
  double coverage = 0;            // share of the reference's tensors that were compared; waived ones do not count
  std::vector<Finding> findings;  // every verdict but `pass`, in execution order
  std::vector<Finding> passed;    // the others
  std::vector<WaivedFinding> waived_findings;  // neither; in execution order
  std::vector<RootCause> roots;                // in execution order; none where nobody looked for them
  std::optional<std::int64_t> left_alone;      // wrong tensors of a second run whose modules got the reference's values
  std::vector<MissingGroup> missing_groups;
  std::map<std::pair<std::string, Kind>, Counts> by_name;  // over iterations and micro-batches
  std::vector<std::string> notes;
  std::string command_for_all;  // the command that prints all findings
  bool strict = false;          // untrusted counts as failed

  // Same: something passed, nothing failed, nothing is missing, no difference is without a tolerance (and,
  // if strict, nothing is untrusted).
  bool same() const;
  // A tensor differs, and nobody says by how much it may.
  bool lacks_tolerance() const;
  // The first finding in execution order that is `fail` or `missing`; null when there is none.
  const Finding* root_cause() const;
};

// rel_err / allowed; absent where nothing was allowed or measured, where it is not finite, and where the tensor is not.
std::optional<double> ratio_of(const Finding& finding);

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
