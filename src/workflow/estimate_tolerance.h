// Does the work of `ttrace estimate-tolerance`: measures how far perturbed runs of the reference move each tensor.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/annotation.h"
#include "team/team.h"
#include "tolerance/estimate.h"

namespace ttrace {

struct EstimateToleranceOptions {
  std::string reference;  // directory of a trace
  std::vector<std::filesystem::path> perturbed;
  std::filesystem::path anchor;  // of one run in a wider dtype, in place of the perturbed ones; may stay empty
  std::filesystem::path rerun;   // may stay empty
  AnnotationSource annotations;
  std::optional<Estimator> estimator;  // none: that of the runs that are given, or the default
  double margin = kDefaultMargin;
  Team* team = nullptr;  // the processes that work on it; null: this one alone
};

// Throws InputError where the runs do not fit together.
ToleranceFile estimate_tolerance(const EstimateToleranceOptions& options);

// Throws InputError where a run, of the same command, lacks a tensor of the reference or begins with other parameters:
// no other run of it need be collected.
void require_beginning_of_reference(const EstimateToleranceOptions& options, const std::filesystem::path& run);

void write_tolerances(const ToleranceFile& file, const std::filesystem::path& output);

// Returns some lines for people; `output` names the file.
std::string summary_of(const ToleranceFile& file, const std::string& output);

}  // namespace ttrace
