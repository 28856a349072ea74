// Does the work of `ttrace check`: finds out whether the candidate computes what the reference computes.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/annotation.h"
#include "base/outcome.h"
#include "history/history.h"
#include "page/html.h"
#include "team/team.h"

namespace ttrace {

struct CheckOptions {
  std::string reference, candidate;  // traces, or what other programs saved (workflow/saved.h)
  std::string python;                // that reads the latter; empty: python3
  AnnotationSource annotations;
  AnnotationSource reference_annotations;  // where these are others; no file: as the candidate's, if names are the same
  std::string correspondence;       // file, or the name of one that comes with ttrace; empty: both have the same names
  std::string tolerance;            // file, or empty
  bool bits = false;                // equal bits are asked for, and nothing is tolerated
  std::string sequences;            // which input holds the tokens by which rows are mapped; empty: batches are alike
  std::string tolerance_reference;  // what that was measured on, where `reference` is that run again; else empty
  std::string rounded_to;           // dtype that the candidate's tensors were rounded to, or empty
  std::string only;                 // pattern, or empty
  std::set<std::int32_t> iterations;  // to compare; none: all
  // Of each side, where the candidate counts others than the reference: both, or none.
  std::set<std::int32_t> reference_iterations, candidate_iterations;
  std::vector<Waiver> waivers;
  bool strict = false;
  bool checksums = true;          // verify those of the tensors that are compared
  bool accept_overrides = false;  // of the tolerance file, however much they allow; so it is with waivers
  bool allow_same_run = false;    // the candidate may be the reference itself
  bool pictures = false;          // draw the tensors that a page shows
  int threads = 0;
  Team* team = nullptr;  // the processes that work on it; null: this one alone
};

struct Checked {
  Report report;
  CheckRecord record;  // for add_to_history
  PageFacts page;      // for to_html
};

// Throws InputError where it could not look.
Checked check(const CheckOptions& options);

}  // namespace ttrace
