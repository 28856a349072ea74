#include "workflow/estimate_tolerance.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <utility>

#include "process/launch.h"
#include "terminal/progress_line.h"
#include "ttrace/error.h"
#include "ttrace/judge/match.h"
#include "ttrace/load/annotation_file.h"
#include "ttrace/load/tolerance_file.h"
#include "ttrace/load/trace_reader.h"
#include "ttrace/tolerance/estimate.h"
#include "workflow/collect.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

Dtype compute_dtype_of(const Trace& reference) {
  const auto dtype = dtype_from_name(reference.compute_dtype);
  if (dtype && is_floating(*dtype)) return *dtype;
  throw InputError(
      fmt::format("{}: its compute dtype is '{}'; expected a floating-point one, such as bfloat16: the "
                  "least that a tensor may differ by follows from it",
                  reference.directory.string(), reference.compute_dtype));
}

// A run that lacks a tensor, or has it in another shape, is not a run of the same program; an estimate
// from it would be one without those tensors, and would hide bugs in them.
Matching match_run(const Alignment& reference, const Alignment& run, const fs::path& directory) {
  Matching matching = match(reference, run);
  if (!matching.findings.empty()) {
    throw InputError(
        fmt::format("{}: {}{}; expected the tensors of the reference", directory.string(), matching.findings[0].message,
                    matching.findings.size() == 1 ? "" : fmt::format(" (and {} more)", matching.findings.size() - 1)));
  }
  return matching;
}

// The runs in memory: pairs point into alignments, alignments into traces.
struct Runs {
  Trace reference;
  Alignment reference_tensors;
  std::vector<Trace> others;  // the perturbed ones, then the rerun if there is one
  std::vector<Alignment> tensors;
  std::vector<Matching> matchings;  // owns the rows that pairs of routed tokens share
  std::vector<RunDifferences> differences;
};

RunDifferences measure_run(Runs& runs, std::size_t i, std::string_view role) {
  const fs::path& directory = runs.others[i].directory;
  RunDifferences result;
  result.what = directory.string();
  const Matching& matching = runs.matchings.emplace_back(match_run(runs.reference_tensors, runs.tensors[i], directory));
  result.pairs = matching.pairs;
  result.rerouted = find_changed(result.pairs, matching.reroutes);
  const ProgressLine progress(fmt::format("comparing the {} {}", role, directory.string()));
  result.differences = compare(result.pairs, {0, progress.callback()});
  return result;
}

}  // namespace

ToleranceFile estimate_tolerance(const EstimateToleranceOptions& options) {
  Runs runs;
  runs.reference = read_trace(options.reference);
  for (const fs::path& directory : options.perturbed) runs.others.push_back(read_trace(directory));
  if (!options.rerun.empty()) runs.others.push_back(read_trace(options.rerun));
  const std::span<const Trace> perturbed(runs.others.data(), options.perturbed.size());
  const bool has_rerun = !options.rerun.empty();
  // Before anything is compared: which runs these are costs nothing to find out.
  ToleranceFile identity;
  identify_runs(runs.reference, perturbed, has_rerun ? &runs.others.back() : nullptr, identity);
  if (!options.estimator.empty() && options.estimator != identity.estimator) {
    throw InputError(fmt::format("--estimator {}: {} was perturbed at the {}; expected runs of that estimator",
                                 options.estimator, perturbed[0].directory.string(), identity.estimator));
  }
  const EstimateOptions how{options.margin, compute_dtype_of(runs.reference), identity.estimator};

  Annotations annotations;
  if (!options.annotations.empty()) annotations = read_annotations(options.annotations);
  runs.reference_tensors = align(runs.reference, annotations, {});
  require_whole(runs.reference_tensors, options.reference);
  for (const Trace& trace : runs.others) {
    runs.tensors.push_back(align(trace, annotations, layout_of(runs.reference_tensors)));
    require_whole(runs.tensors.back(), trace.directory.string());
  }
  for (std::size_t i = 0; i < runs.others.size(); ++i) {
    runs.differences.push_back(measure_run(runs, i, i < perturbed.size() ? "perturbed run" : "rerun"));
  }
  ToleranceFile file =
      estimate({runs.differences.data(), perturbed.size()}, has_rerun ? &runs.differences.back() : nullptr, how);
  file.reference_run = identity.reference_run;
  file.perturbed_runs = identity.perturbed_runs;
  file.seeds = identity.seeds;
  file.rerun = identity.rerun;
  return file;
}

void write_tolerances(const ToleranceFile& file, const fs::path& output) {
  std::ofstream stream(output, std::ios::binary | std::ios::trunc);
  stream << to_yaml(file) << std::flush;
  if (!stream) throw InputError(fmt::format("{}: cannot be written; expected a file", output.string()));
}

std::string summary_of(const ToleranceFile& file, const std::string& output) {
  const auto noise = std::count_if(file.tensors.begin(), file.tensors.end(),
                                   [](const auto& item) { return item.second.allowed >= 1; });
  std::string text = fmt::format("{}: {} tolerances from {} perturbed runs{}, margin {}\n", output, file.tensors.size(),
                                 file.perturbed_runs.size(), file.rerun ? " and a rerun" : "", file.margin);
  if (noise > 0) {
    text += fmt::format("note: {} of them are 1 or more: pure noise, which a check reports as untrusted\n", noise);
  }
  for (const std::string& note : file.notes) text += fmt::format("note: {}\n", note);
  return text;
}

}  // namespace ttrace
