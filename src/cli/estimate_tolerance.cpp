// `ttrace estimate-tolerance`: how far do perturbed runs of the reference move each tensor?
#include "workflow/estimate_tolerance.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "cli/commands.h"
#include "host/launch.h"
#include "load/trace_reader.h"
#include "workflow/collect.h"
#include "workflow/keyed_seal.h"
#include "workflow/processes.h"

namespace ttrace::cli {
namespace {

namespace fs = std::filesystem;

struct EstimateArguments {
  EstimateToleranceOptions estimate;
  fs::path output, runs;
  std::string iterations, axes;
  std::string estimator;  // empty: that of the runs, or the default
  std::uint64_t seeds = kLeastPerturbedRuns;
  std::optional<std::size_t> jobs;  // absent: as many as the machine has room for
  std::vector<std::string> command;
  bool seal = false;  // the output that is there, and nothing else
};

// Holds what the other runs record, as the reference did.
struct Recording {
  RecordedIterations iterations = {CollectOptions().iterations, CollectOptions().then};
  RecordingSelection selection;
};

CollectOptions run_of(const EstimateArguments& arguments, const fs::path& output, const Recording& recording,
                      std::optional<std::uint64_t> seed) {
  const EstimateToleranceOptions& options = arguments.estimate;
  CollectOptions run;
  run.output = output;
  run.annotations = options.annotations;
  run.iterations = recording.iterations.whole;
  run.then = recording.iterations.then;
  run.selection = recording.selection;
  run.axes = arguments.axes;
  run.perturb = seed;
  run.perturb_at = options.estimator.value_or(kDefaultEstimator);
  if (options.estimator == Estimator::kRewritten && output != options.reference) run.rewrite.inject = options.reference;
  run.command = arguments.command;
  return run;
}

Recording recording_for(const EstimateArguments& arguments) {
  Recording recording;
  if (!arguments.iterations.empty()) recording.iterations.whole = parse_iterations(arguments.iterations);
  if (!fs::exists(arguments.estimate.reference)) return recording;
  const Trace reference = read_trace(arguments.estimate.reference);
  if (arguments.iterations.empty()) recording.iterations = iterations_of(reference);
  recording.selection = reference.provenance.selection;
  return recording;
}

// Side by side run as many as there are cores, where a run is one process on the CPU. Runs of several ranks may want
// the same port, and a GPU need not have the memory for two.
std::size_t jobs_for(const EstimateArguments& arguments) {
  if (arguments.jobs) return *arguments.jobs;
  const Trace reference = read_trace(arguments.estimate.reference);
  if (reference.world_size > 1 || reference.provenance.device != "cpu") return 1;
  return std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, kMostSideBySide);
}

// False also where no rank of it can be read.
bool is_whole_trace(const fs::path& run) {
  try {
    const Trace trace = read_trace(run);
    const auto is_whole = [](const RankTrace& rank) { return rank.complete; };
    return std::all_of(trace.ranks.begin(), trace.ranks.end(), is_whole) &&
           trace.ranks.size() == static_cast<std::size_t>(trace.world_size);
  } catch (const InputError&) {
    return false;
  }
}

// Removes what an earlier command that was ended has left of a run; a whole one stays in the way.
void remove_unfinished(const fs::path& run) {
  if (!fs::is_directory(run)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(run)) {  // nothing of anybody else's
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("rank-") && name != "rewritten" && name != "job.failure") return;
  }
  if (!is_whole_trace(run)) fs::remove_all(run);
}

// Collects further perturbed runs, by the seeds behind those that are there, and returns their traces.
std::vector<fs::path> collect_further(const EstimateArguments& arguments, std::size_t runs) {
  const Recording recording = recording_for(arguments);
  std::vector<CollectOptions> further;
  std::vector<fs::path> traces;
  for (std::uint64_t seed = arguments.seeds + 1; seed <= arguments.seeds + runs; ++seed) {
    traces.push_back(arguments.runs / fmt::format("perturbed-{}", seed));
    remove_unfinished(traces.back());
    further.push_back(run_of(arguments, traces.back(), recording, seed));
  }
  collect_all(further, jobs_for(arguments));
  return traces;
}

// Runs the command for each run that is not given.
void collect_missing(EstimateArguments& arguments) {
  EstimateToleranceOptions& options = arguments.estimate;
  if (arguments.runs.empty()) arguments.runs = fs::path(arguments.output).replace_extension(".runs");
  if (options.reference.empty()) options.reference = (arguments.runs / "reference").string();
  const Recording recording = recording_for(arguments);
  const bool are_given = !options.perturbed.empty() || !options.anchor.empty();
  std::vector<CollectOptions> missing;
  if (!fs::exists(options.reference)) {
    missing.push_back(run_of(arguments, options.reference, recording, std::nullopt));
    // Rewritten runs are given what it holds, and it tells how many others the machine has room for.
    if (options.estimator == Estimator::kRewritten || !arguments.jobs) collect_all(std::exchange(missing, {}), 1);
  }
  const bool is_there = missing.empty();  // the reference
  if (options.rerun.empty()) {
    options.rerun = arguments.runs / "rerun";
    remove_unfinished(options.rerun);
    missing.push_back(run_of(arguments, options.rerun, recording, std::nullopt));
  }
  for (std::uint64_t seed = 1; !are_given && seed <= arguments.seeds; ++seed) {
    options.perturbed.push_back(arguments.runs / fmt::format("perturbed-{}", seed));
    remove_unfinished(options.perturbed.back());
    missing.push_back(run_of(arguments, options.perturbed.back(), recording, seed));
  }
  for (const CollectOptions& run : missing) {
    if (!fs::exists(run.output) || fs::is_empty(run.output)) continue;
    throw InputError(
        fmt::format("{0}: has the runs of an earlier command; expected a new or an empty directory (rm -r "
                    "{0} removes it)",
                    arguments.runs.string()));
  }
  if (missing.empty()) return;
  bool is_first = true;
  collect_all(missing, jobs_for(arguments), [&](const CollectOptions& run) {
    if (is_there && std::exchange(is_first, false)) require_beginning_of_reference(options, run.output);
  });
}

void require_runs(const EstimateToleranceOptions& options) {
  if (options.reference.empty()) throw InputError("no --reference; expected one, or a command after -- to collect it");
  if (!options.anchor.empty()) return;
  if (options.perturbed.size() < kLeastPerturbedRuns) {
    throw InputError(
        fmt::format("{} perturbed runs; expected {} or more after --perturbed, or a command after -- to "
                    "collect them",
                    options.perturbed.size(), kLeastPerturbedRuns));
  }
}

int run(EstimateArguments arguments, Team& team) {
  if (arguments.seal) {
    seal_anew(arguments.output);
    std::cout << fmt::format("{}: sealed with the key in {}\n", arguments.output.string(), kSealKeyVariable);
    return kExitSame;
  }
  has_seal_key();  // one that is refused is so before runs that take minutes
  arguments.estimate.estimator = estimator_from_name(arguments.estimator);
  arguments.estimate.annotations.axes = arguments.axes;
  if (!arguments.command.empty() && team.size() > 1) {
    throw InputError(
        fmt::format("started as {} processes, and a command after --, which one would run; expected runs "
                    "that are collected already (--perturbed)",
                    team.size()));
  }
  arguments.estimate.team = &team;
  const bool are_given = !arguments.estimate.perturbed.empty() || !arguments.estimate.anchor.empty();
  if (!arguments.command.empty()) collect_missing(arguments);
  require_runs(arguments.estimate);
  const bool can_collect = !arguments.command.empty() && !are_given;
  const ToleranceFile file =
      can_collect
          ? estimate_tolerance(arguments.estimate, [&](std::size_t runs) { return collect_further(arguments, runs); })
          : estimate_tolerance(arguments.estimate);
  write_tolerances(file, arguments.output);
  std::cout << summary_of(file, arguments.output.string());
  return kExitSame;
}

// Adds the options for the runs that are not given.
void add_collecting_options(CLI::App& estimate, EstimateArguments& arguments) {
  const char* const kCollecting = "Collecting what is not given";
  estimate.add_option("COMMAND", arguments.command, "The reference's command, after --: collects what is not given");
  estimate.add_option("--seeds", arguments.seeds, "Number of perturbed runs to collect")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(kLeastPerturbedRuns, std::size_t{1000}))
      ->group(kCollecting);
  estimate
      .add_option("-j,--jobs", arguments.jobs,
                  "Runs to collect side by side; what they print goes to NAME.log in the directory of the runs "
                  "[one a core for one process on the CPU, else 1]")
      ->type_name("N")
      ->check(CLI::Range(std::size_t{1}, kMostSideBySide))
      ->group(kCollecting);
  estimate.add_option("--runs", arguments.runs, "Directory for the runs [OUTPUT with .runs]")
      ->type_name("DIR")
      ->group(kCollecting);
  estimate.add_option("--iterations", arguments.iterations, "Iterations to record [those of the reference, or 0]")
      ->type_name("LIST")
      ->group(kCollecting);
  estimate.add_option("--axes", arguments.axes, "Axes of a reference on several ranks, as for `ttrace collect`")
      ->type_name("AXES")
      ->group(kCollecting);
}

}  // namespace

void add_estimate_tolerance(CLI::App& app, Run& run_command) {
  auto arguments = std::make_shared<EstimateArguments>();
  EstimateToleranceOptions& options = arguments->estimate;
  CLI::App* estimate = app.add_subcommand("estimate-tolerance", "Find out what each tensor may differ by");
  estimate->add_option("-o,--output", arguments->output, "Tolerance file to write (YAML)")
      ->type_name("FILE")
      ->required();
  add_option(*estimate, option::kReference, options.reference)
      ->description("Trace of the reference; collected if not there");
  add_annotation_options(*estimate, options.annotations)
      ->description("How the program places its tensors (YAML); for a reference on several ranks, or with experts");
  estimate->add_option("--perturbed", options.perturbed, "Traces of perturbed runs, three or more")->type_name("TRACE");
  estimate
      ->add_option(
          "--anchor", options.anchor,
          "Trace of one run in a wider dtype, such as fp32 for a reference in bf16, in place of perturbed runs: "
          "how far it is from the reference is what each tensor rounds")
      ->type_name("TRACE")
      ->excludes("--perturbed");
  estimate->add_option("--rerun", options.rerun, "Trace of an unperturbed rerun: the run's own noise")
      ->type_name("TRACE");
  add_option(*estimate,
             {.names = "--estimator",
              .type = "NAME",
              .help = "What perturbed runs perturb: input, the first activation alone; modules, the output of every "
                      "module; rewritten, what `collect --inject` gives to modules, for candidates that are collected "
                      "so [input]",
              .choices = choices::estimators},
             arguments->estimator);
  estimate->get_option("--anchor")->excludes("--estimator");
  estimate->add_option("--margin", options.margin, "allowed = margin * max(estimate, floor)")
      ->type_name("FACTOR")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1000.0));
  estimate
      ->add_flag("--seal", arguments->seal,
                 "Seal the OUTPUT that is there, after an edit, with the key in TTRACE_SEAL_KEY; measure nothing")
      ->excludes(estimate->get_option("--perturbed"), estimate->get_option("--anchor"),
                 estimate->get_option("--rerun"));
  add_collecting_options(*estimate, *arguments);
  estimate->footer(R"(Examples:
  ttrace estimate-tolerance -o tolerance.yaml --reference reference -- \
    python train.py
  ttrace estimate-tolerance -o tolerance.yaml --reference reference \
    --perturbed p1 p2 p3 --rerun again

Exit codes: 0 written, 2 could not (misuse, unreadable input, runs that do not
fit together).)");
  estimate->callback([arguments, &run_command] {
    run_command = [arguments] { return run_with_team([&](Team& team) { return run(*arguments, team); }); };
  });
}

}  // namespace ttrace::cli
