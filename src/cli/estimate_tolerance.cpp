#include "cli/estimate_tolerance.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <utility>

#include "cli/collect.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/progress_line.h"
#include "ttrace/error.h"
#include "ttrace/judge/match.h"
#include "ttrace/load/annotation_file.h"
#include "ttrace/load/tolerance_file.h"
#include "ttrace/load/trace_reader.h"
#include "ttrace/tolerance/estimate.h"

namespace ttrace::cli {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  EstimateToleranceOptions estimate;
  fs::path output, runs;
  std::string iterations, axes;
  std::uint64_t seeds = kLeastPerturbedRuns;
  std::size_t jobs = 1;
  std::vector<std::string> command;
};

CollectOptions run_of(const Arguments& arguments, const fs::path& output, const std::vector<std::int32_t>& iterations,
                      std::optional<std::uint64_t> seed) {
  const EstimateToleranceOptions& options = arguments.estimate;
  CollectOptions run;
  run.output = output;
  run.annotations = options.annotations;
  run.iterations = iterations;
  run.axes = arguments.axes;
  run.perturb = seed;
  run.perturb_at = options.estimator.empty() ? kDefaultEstimator : options.estimator;
  if (options.estimator == kRewrittenEstimator && output != options.reference) run.rewrite.inject = options.reference;
  run.command = arguments.command;
  return run;
}

// The other runs must record what the reference did.
std::vector<std::int32_t> iterations_for(const Arguments& arguments) {
  const fs::path& reference = arguments.estimate.reference;
  if (!arguments.iterations.empty()) return parse_iterations(arguments.iterations);
  if (!fs::exists(reference)) return CollectOptions().iterations;
  return iterations_of(read_trace(reference));
}

// Runs the command for each run that is not given.
void collect_missing(Arguments& arguments) {
  EstimateToleranceOptions& options = arguments.estimate;
  if (arguments.runs.empty()) arguments.runs = fs::path(arguments.output).replace_extension(".runs");
  if (options.reference.empty()) options.reference = arguments.runs / "reference";
  const std::vector<std::int32_t> iterations = iterations_for(arguments);
  const bool are_given = !options.perturbed.empty();
  std::vector<CollectOptions> missing;
  if (!fs::exists(options.reference)) {
    missing.push_back(run_of(arguments, options.reference, iterations, std::nullopt));
    // Rewritten runs are given what it holds.
    if (options.estimator == kRewrittenEstimator) collect_all(std::exchange(missing, {}), 1);
  }
  if (options.rerun.empty()) {
    options.rerun = arguments.runs / "rerun";
    missing.push_back(run_of(arguments, options.rerun, iterations, std::nullopt));
  }
  for (std::uint64_t seed = 1; !are_given && seed <= arguments.seeds; ++seed) {
    options.perturbed.push_back(arguments.runs / fmt::format("perturbed-{}", seed));
    missing.push_back(run_of(arguments, options.perturbed.back(), iterations, seed));
  }
  collect_all(missing, arguments.jobs);
}

void require_runs(const EstimateToleranceOptions& options) {
  if (options.reference.empty()) throw InputError("no --reference; expected one, or a command after -- to collect it");
  if (options.perturbed.size() < kLeastPerturbedRuns) {
    throw InputError(
        fmt::format("{} perturbed runs; expected {} or more after --perturbed, or a command after -- to "
                    "collect them",
                    options.perturbed.size(), kLeastPerturbedRuns));
  }
}

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

int run(Arguments arguments) {
  if (!arguments.command.empty()) collect_missing(arguments);
  require_runs(arguments.estimate);
  const ToleranceFile file = estimate_tolerance(arguments.estimate);
  write_tolerances(file, arguments.output);
  std::cout << summary_of(file, arguments.output.string());
  return kSame;
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
  require_whole(runs.reference_tensors, options.reference.string());
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

void add_estimate_tolerance(CLI::App& app, Run& run_command) {
  auto arguments = std::make_shared<Arguments>();
  EstimateToleranceOptions& options = arguments->estimate;
  CLI::App* estimate = app.add_subcommand("estimate-tolerance", "Find out what each tensor may differ by");
  estimate->add_option("-o,--output", arguments->output, "Tolerance file to write (YAML)")->required();
  estimate->add_option("--reference", options.reference, "Trace of the reference; collected if not there");
  estimate->add_option("--perturbed", options.perturbed, "Traces of perturbed runs, three or more");
  estimate->add_option("--rerun", options.rerun, "Trace of an unperturbed rerun: the run's own noise");
  estimate->add_option("-a,--annotations", options.annotations,
                       "For a reference on several ranks, or with experts (YAML)");
  estimate->add_option("--margin", options.margin, "allowed = margin * max(estimate, floor)")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1000.0));
  estimate->add_option("--seeds", arguments->seeds, "Number of perturbed runs to collect")
      ->capture_default_str()
      ->check(CLI::Range(kLeastPerturbedRuns, std::size_t{1000}));
  estimate
      ->add_option("--estimator", options.estimator,
                   fmt::format("What perturbed runs perturb: input, the first activation alone; modules, the output\n"
                               "of every module; rewritten, what `collect --inject` gives to modules, for\n"
                               "candidates that are collected so [{}]",
                               kDefaultEstimator))
      ->check(CLI::IsMember(kEstimators));
  estimate
      ->add_option("-j,--jobs", arguments->jobs,
                   "Runs to collect side by side; what they print goes to NAME.log in the directory of the runs")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, kMostSideBySide));
  estimate->add_option("--runs", arguments->runs, "Directory for the runs it collects [OUTPUT with .runs]");
  estimate->add_option("--iterations", arguments->iterations, "Iterations to record [those of the reference, or 0]");
  estimate->add_option("--axes", arguments->axes, "Axes of a reference on several ranks, as for collect");
  estimate->add_option("command", arguments->command, "The reference's command, after --: collects what is not given");
  estimate->footer(
      "Examples:\n"
      "  ttrace estimate-tolerance -o tolerance.yaml --reference reference -- python train.py\n"
      "  ttrace estimate-tolerance -o tolerance.yaml --reference reference --perturbed p1 p2 p3 --rerun again\n"
      "\n"
      "Exit codes: 0 written, 2 could not (misuse, unreadable input, runs that do not fit together).");
  estimate->callback([arguments, &run_command] { run_command = [arguments] { return run(*arguments); }; });
}

}  // namespace ttrace::cli
