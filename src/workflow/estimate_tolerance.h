// Does the work of `ttrace estimate-tolerance`: measures how far perturbed runs of the reference move each tensor.
#pragma once

#include <filesystem>
#include <functional>
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

// Throws InputError where the runs do not fit together: UnlikeOthers (tolerance/family.h), too.
ToleranceFile estimate_tolerance(const EstimateToleranceOptions& options);

// The same of perturbed runs that can be had anew. Where one is unlike the others, `collect_further` collects as many as
// it is given, perturbed by further seeds: rounding may decide a choice, such as which of equal scores are the largest,
// in a few runs of many. One that is unlike all of these is left out, with a note: what it would allow, no other does.
// Throws InputError where two are.
using CollectFurther = std::function<std::vector<std::filesystem::path>(std::size_t)>;
ToleranceFile estimate_tolerance(EstimateToleranceOptions options, const CollectFurther& collect_further);

// Throws InputError where a run, of the same command, lacks a tensor of the reference or begins with other parameters:
// no other run of it need be collected.
void require_beginning_of_reference(const EstimateToleranceOptions& options, const std::filesystem::path& run);

void write_tolerances(const ToleranceFile& file, const std::filesystem::path& output);

// Returns some lines for people; `output` names the file.
std::string summary_of(const ToleranceFile& file, const std::string& output);

}  // namespace ttrace
