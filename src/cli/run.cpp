// `ttrace run`: everything that ttrace.yaml asks for, in one command.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <iostream>
#include <memory>

#include "base/count_of.h"
#include "base/error.h"
#include "cli/commands.h"
#include "files/read_run_file.h"
#include "files/tolerance_file.h"
#include "host/launch.h"
#include "host/shell_words.h"
#include "identify/program.h"
#include "judge/jumps.h"
#include "page/html.h"
#include "report/render.h"
#include "report/run_report.h"
#include "text/readable.h"
#include "workflow/annotations.h"
#include "workflow/artifacts.h"
#include "workflow/candidate_check.h"
#include "workflow/check.h"
#include "workflow/collect.h"
#include "workflow/keyed_seal.h"
#include "workflow/localize.h"
#include "workflow/report_files.h"
#include "workflow/whole_recording.h"

namespace ttrace::cli {
namespace {

namespace fs = std::filesystem;

struct RunOptions {
  std::string file = "ttrace.yaml";
  std::string work = ".ttrace";
  std::string only;
  std::string json, junit, markdown, html, sarif, history;
  bool github = false;
  bool plan = false, refresh = false, bisect = false;
  int threads = 0;
  std::size_t jobs = 1;
};

RunFile load(const RunOptions& options, const std::string& today) {
  if (!fs::exists(options.file)) {
    throw InputError(fmt::format("{}: not there; expected a file that says what to run, as `ttrace run --help` shows",
                                 options.file));
  }
  RunFile file = read_run_file(options.file);
  // A mistake that would stop a command later is reported before the first one runs.
  if (!file.iterations.empty()) parse_iterations(file.iterations, file.path + ": iterations");
  check_axes(file.reference.axes, fmt::format("{}:{}: axes", file.path, file.reference.line));
  load_annotations(file.annotations);
  if (!file.correspondence.empty()) load_correspondence(file.correspondence);
  require_modest_waivers(file, today);
  return file;
}

std::vector<Job> select_candidates(const RunFile& file, const std::string& only) {
  std::vector<Job> jobs = candidate_jobs(file);
  std::string names;
  for (const Job& job : jobs) {
    check_axes(job.axes, fmt::format("{}:{}: axes of {}", file.path, job.line, job.name));
    if (!job.parameters.empty() || !job.annotations.empty()) load_annotations(annotations_for(file, job));
    if (!job.tolerance.empty()) read_sealed_tolerances(job.tolerance);
    names += (names.empty() ? "" : ", ") + job.name;
  }
  if (!only.empty()) {
    std::erase_if(jobs, [&](const Job& job) { return fnmatch(only.c_str(), job.name.c_str(), 0) != 0; });
  }
  if (jobs.empty()) throw InputError(fmt::format("--only '{}': fits no candidate; expected one of {}", only, names));
  return jobs;
}

// The files that the run itself writes.
std::set<fs::path> written_by(const RunOptions& options) {
  std::set<fs::path> files;
  for (const std::string& path :
       {options.json, options.junit, options.markdown, options.html, options.sarif, options.history}) {
    if (!path.empty() && path != "-") files.insert(fs::weakly_canonical(path));
  }
  return files;
}

// False where every candidate has a tolerance file of its own.
bool needs_estimate(const std::vector<Job>& candidates) {
  return std::any_of(candidates.begin(), candidates.end(), [](const Job& job) { return job.tolerance.empty(); });
}

void print_plan(const std::string& name, const CacheState& state, const std::string& command) {
  std::cout << printable(fmt::format("{}: {}", name,
                                     state.freshness == Freshness::kFits      ? std::string("there")
                                     : state.freshness == Freshness::kMissing ? "missing: " + command
                                                                              : "stale: " + describe(state)))
            << "\n";
}

int show_plan(Artifacts& artifacts, const RunFile& file, const std::vector<Job>& candidates, Renewal renewal) {
  const CacheState reference = artifacts.reference_state();
  const CacheState tolerance =
      needs_estimate(candidates) ? artifacts.tolerance_state() : CacheState{Freshness::kFits, {}};
  print_plan(kReference, reference, shell_line(file.reference.command));
  if (needs_estimate(candidates)) {
    print_plan(kTolerance, tolerance,
               fmt::format("{} runs of the reference, in its own launch where it can be", file.seeds + 1));
  }
  for (const Job& job : candidates) print_plan(job.name, artifacts.candidate_state(job), shell_line(job.command));
  if (artifacts.makes_again(reference, renewal) && artifacts.makes_again(tolerance, renewal)) return kExitSame;
  std::cout << "a run would refuse what is stale; with --refresh it makes that again\n";
  return kExitCouldNotLook;
}

// Holds what the candidates of one run have in common.
struct RunContext {
  const RunOptions& options;
  const RunFile& file;
  const Workspace& workspace;
  Artifacts& artifacts;
  std::string today;
  std::vector<std::string>& notes;  // of the run's report
  std::size_t& launches;            // of the program, so far
};

// Runs a candidate that differs once more, and adds to its report which modules are wrong by themselves. Where that
// cannot be told, the report stands as it is, with a note.
void localize(const RunContext& context, const Job& job, const CheckOptions& options, Report& report) {
  if (report.verdict() != RunVerdict::kDifferent || !context.file.localize) return;
  try {
    std::string reason;
    const std::optional<CollectOptions> second = second_run_options(options, report, reason);
    if (!second) return;
    context.artifacts.make_second_run(job, *second);
    add_second_run(report, options, context.workspace.trace_of(second_run_artifact(job)));
  } catch (const InputError& error) {
    report.notes.push_back(fmt::format("no second run: {}", error.what()));
  }
}

CheckOptions options_of_check(const RunContext& context, const Job& job) {
  CheckOptions options = check_options(context.file, job, context.workspace, context.today);
  options.threads = context.options.threads;
  options.pictures = !context.options.html.empty();
  return options;
}

// Checks further runs of the candidate and its reference, which recorded whole the light iteration of which `first` lacks
// the activations. Returns nothing where `first` lacks none, and where that cannot be done, with a note.
std::optional<Checked> check_whole_recording(const RunContext& context, const Job& job, const Report& first) {
  const std::optional<std::size_t> lacking = first.advice.lacks_activations;
  if (!lacking || !context.file.localize || !job.tolerance.empty()) return std::nullopt;
  const TensorId& id = first.findings[*lacking].id;
  const std::string what = fmt::format("{}: iteration {}", job.name, id.iteration);
  try {
    WholeRecording again(context.file, context.workspace, id.iteration, written_by(context.options),
                         context.options.jobs, context.launches);
    again.make(job);
    const RunContext whole{context.options, again.file(),  again.workspace(), again.artifacts(),
                           context.today,   context.notes, context.launches};
    const CheckOptions options = options_of_check(whole, job);
    Checked checked = check(options);
    const Finding* wrong = checked.report.first_wrong();
    const bool is_one_root = checked.report.explanation.roots.size() == 1;
    if (first.verdict() == RunVerdict::kCouldNotLook && wrong != nullptr && is_one_root &&
        is_noted_jump(wrong->id, checked.report.notes)) {
      context.notes.push_back(
          fmt::format("{} was recorded whole in further runs ({}): {} jumps at a kink, but by more than {:g}, behind "
                      "which mistakes would hide: the question stays; look at another iteration",
                      what, again.runs(), to_string(wrong->id), kLargestJump));
      return std::nullopt;
    }
    localize(whole, job, options, checked.report);
    context.notes.push_back(fmt::format(
        "{} was recorded whole in further runs ({}): only its activations tell why {} is not the reference's", what,
        again.runs(), to_string(id)));
    return checked;
  } catch (const InputError& error) {
    context.notes.push_back(
        fmt::format("{} could not be recorded whole, and only its activations tell why {} is not the reference's: {}",
                    what, to_string(id), error.what()));
    return std::nullopt;
  }
}

// Fills `page` with what the candidate's page shows.
Report check_candidate(const RunContext& context, const Job& job, PageFacts& page) {
  const std::string artifact = candidate_artifact(job);
  const fs::path report_file = context.workspace.path_of(artifact) / "report.json";
  fs::remove(report_file);
  const CheckOptions options = options_of_check(context, job);
  Checked checked = check(options);
  const bool is_right = checked.report.same();
  if (!is_right && job.tolerance.empty() && context.artifacts.makes_tolerance_from_launches()) checked = check(options);
  if (std::optional<Checked> whole = check_whole_recording(context, job, checked.report)) {
    checked = *std::move(whole);
  } else {
    localize(context, job, options, checked.report);
  }
  write_file(report_file, to_json(checked.report));
  checked.record.candidate = job.name;
  if (!context.options.history.empty()) add_to_history(context.options.history, checked.record, checked.report);
  page = std::move(checked.page);
  return std::move(checked.report);
}

CandidateReport collect_and_check(const RunContext& context, const Job& job, PageFacts& page) {
  CandidateReport result{job.name, shell_line(job.command), "", {}};
  try {
    context.artifacts.make_candidate(job);
    result.report = check_candidate(context, job, page);
  } catch (const MissingAxes& error) {
    result.problem = fmt::format(
        "nothing says how its ranks are arranged; expected `axes` beside the command on line {} of {}, as in "
        "`axes: {}`, by the samples that they read, or `parallelism: {{axes: {}}}` in the annotations",
        job.line, context.file.path, error.proposed(), error.proposed());
  } catch (const InputError& error) {
    result.problem = error.what();  // the other candidates are checked all the same
  }
  return result;
}

void add_waiver_notes(const RunContext& context, RunReport& report) {
  std::set<int> used;
  std::set<std::string> checked;
  for (const CandidateReport& candidate : report.candidates) {
    if (candidate.problem.empty()) checked.insert(candidate.name);
    for (const WaivedFinding& waived : candidate.report.waived_findings) used.insert(waived.waiver.line);
  }
  for (std::string& remark : waiver_remarks(context.file, used, checked, context.today)) {
    report.notes.push_back(std::move(remark));
  }
}

// What the file asks for. Throws SetupError.
struct RunPlan {
  std::string today = fmt::format("{:%F}", fmt::gmtime(std::time(nullptr)));  // UTC
  RunFile file;
  std::vector<Job> candidates;
};

RunPlan plan_for(const RunOptions& options) {
  try {
    RunPlan plan;
    plan.file = load(options, plan.today);
    plan.candidates = select_candidates(plan.file, options.only);
    return plan;
  } catch (const InputError& error) {
    throw SetupError(error.what());
  }
}

// True where the reference is made of what each candidate is made of: the same program, run otherwise.
bool is_program_of_all(const Job& reference, const std::vector<Job>& candidates) {
  const std::set<std::string> own(reference.inputs.begin(), reference.inputs.end());
  return std::ranges::all_of(
      candidates, [&](const Job& job) { return std::set<std::string>(job.inputs.begin(), job.inputs.end()) == own; });
}

// What stands for right must not change from commit to commit, unless each commit has a reference of its own: its
// program on one process.
Renewal renewal_of(const RunOptions& options, const RunFile& file, const std::vector<Job>& candidates) {
  if (options.refresh) return Renewal::kAll;
  return options.bisect && !is_program_of_all(file.reference, candidates) ? Renewal::kNone : Renewal::kCheap;
}

// What the verdicts cost: of a program that takes minutes to start, its launches.
void print_cost(std::size_t launches, std::chrono::duration<double> passed) {
  spdlog::info("{} of the program, {} in all", count_of(launches, "run"), readable_seconds(passed.count()));
}

int run_candidates(const RunOptions& options, RunReport& report, std::vector<PageFacts>& pages) {
  // plan
  const auto [today, file, candidates] = plan_for(options);
  const Renewal renewal = renewal_of(options, file, candidates);
  Workspace workspace(options.work);
  std::size_t launches = 0;
  const auto start = std::chrono::steady_clock::now();
  Artifacts artifacts(file, workspace, written_by(options), options.jobs, launches);
  if (options.plan) return show_plan(artifacts, file, candidates, renewal);

  // make the reference and its tolerance
  for (const Job& job : candidates) artifacts.candidate_state(job);  // throws where an input is missing
  workspace.open();
  artifacts.make_reference(renewal, needs_estimate(candidates));
  if (needs_estimate(candidates)) artifacts.make_tolerance(renewal);
  report.notes = artifacts.notes();

  // collect and check each candidate
  const RunContext context{options, file, workspace, artifacts, today, report.notes, launches};
  artifacts.prepare_candidates(candidates);
  for (const Job& job : candidates) {
    report.candidates.push_back(collect_and_check(context, job, pages.emplace_back()));
  }
  add_waiver_notes(context, report);
  print_cost(launches, std::chrono::steady_clock::now() - start);
  return exit_code_of(report.verdict());
}

// Returns what the JUnit suites of the candidates say beside their reports.
std::vector<SuiteFacts> suites_of(const RunReport& report, const std::vector<PageFacts>& pages) {
  std::vector<SuiteFacts> suites;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    suites.push_back(suite_facts(report.candidates[i].report, pages[i]));
  }
  return suites;
}

// Returns what the page shows of the checks so far.
History history_of(const RunOptions& options) {
  if (options.history.empty() || !fs::exists(options.history)) return {};
  return read_history(options.history, "", kTensorsOnPage);
}

// Exit codes: `git bisect run` takes one for a commit that can't be tested, and stops from the other on.
constexpr int kSkipCommit = 125, kStopBisecting = 128;
constexpr const char* kBisectAdvice =
    " (to bisect: --refresh makes it again at each commit; or give the reference `inputs`, the files that it alone is "
    "made of, make it on the good commit with `ttrace run --refresh`, and keep ttrace.yaml where no commit changes it: "
    "`ttrace run ../ttrace.yaml --bisect`)";

int run(const RunOptions& options) {
  RunReport report;
  std::vector<PageFacts> pages;  // by candidate
  bool another_commit_helps = true;
  ReportFiles files;
  files.add("--json", options.json, [&] { return to_json(report); });
  files.add("--junit", options.junit, [&] { return to_junit(report, suites_of(report, pages)); });
  files.add("--markdown", options.markdown, [&] { return to_markdown(report); });
  files.add("--html", options.html, [&] { return to_html(report, pages, history_of(options)); });
  files.add("--sarif", options.sarif, [&] { return to_sarif(report); });
  if (options.github) files.add_behind_text("--github", [&] { return to_github(report); });
  try {
    const int code = run_candidates(options, report, pages);
    if (!options.plan) files.write([&] { return to_text(report, text_options()); });
    return options.bisect && code == kExitCouldNotLook ? kSkipCommit : code;
  } catch (const SetupError& error) {
    report.problem = error.what();
    if (options.bisect) report.problem += kBisectAdvice;
    another_commit_helps = false;
  } catch (const InputError& error) {
    report.problem = error.what();
  } catch (const Interrupted& error) {
    report.problem = error.what();
    another_commit_helps = false;
  } catch (const fs::filesystem_error& error) {
    report.problem = error.what();
  }
  // The reports tell other programs of the problem; stderr tells people.
  files.write([] { return ""; });
  if (!options.bisect) throw InputError(report.problem);
  spdlog::error("{}", printable(report.problem));
  return another_commit_helps ? kSkipCommit : kStopBisecting;
}

constexpr const char* kFooter = R"(ttrace.yaml:
  reference: {command: python train.py, inputs: [train.py, model]}
  candidates:
    - name: tp{tp}-dp{dp}
      matrix:                           # as in GitHub Actions: also include
        tp: [1, 2]
        dp: [1, 2]
        exclude: [{tp: 1, dp: 1}]
      command: torchrun --nproc-per-node {ranks} train.py --tp {tp} --dp {dp}
      axes: tp={tp},dp={dp}             # {ranks}: the product of these sizes
  annotations: megatron_llama           # this and all below may be left out
  parameters: {cp_layout: contiguous}   # of the annotations; a candidate
                                        # may have some of its own, or
                                        # annotations: and tolerance: files
  correspondence: ours.yaml             # the candidates are another program
  iterations: 0-1
  then: 2                               # light iterations behind these:
                                        # gradients, updates, values behind them
  seeds: 3                              # perturbed runs
  timeout: 30m                          # of each command; one may have its own
  environment: [CUBLAS_WORKSPACE_CONFIG]  # variables that change the results
  localize: true                        # a second run of what differs: which
                                        # modules are wrong by themselves?
  estimator: input                      # and margin, as for estimate-tolerance
  waivers:
    - {pattern: mlp.router, kinds: [output], candidates: ['tp2-*'],
       reason: issue 12, expires: 2027-01-31}
  accept_overrides: false               # as for check; waivers, too

A command is a line for sh, or a list of words. It runs in the working
directory, where all paths start.

What is in the --work directory and fits is used again; a run that was killed
goes on where it was. It fits while command, axes, iterations, variables and the
code are as they were: the files, directories and patterns under `inputs`, or
what git tracks, untracked sources, and files that the command names. Candidates
that do not fit are run again, and so are a reference and its tolerance that
take at most two minutes, with a note. Dearer ones are refused, with the reason,
and made again with --refresh. Give the reference `inputs`, and other commits
can use it. List the file that pins torch's version, too: runs on two versions
are refused, but an upgrade alone is not noticed.

A waiver accepts wrong tensors until its day (UTC), and they are listed; one
that has expired or waives nothing is reported. One that names no tensor (**) or
holds for more than a year is refused, and so is a run in which waivers excuse
more than half of the tensors of a kind, but for accept_overrides: true.

Examples:
  ttrace run                    # ./ttrace.yaml
  ttrace run --plan             # what would run, and why; nothing runs
  ttrace run --only 'tp2-*' --refresh
  ttrace run -j 4               # each with a MASTER_PORT of its own
  ttrace run --junit junit.xml --markdown "$GITHUB_STEP_SUMMARY" \
    --history history.sqlite
  git bisect start bad-commit good-commit
  git bisect run ttrace run --bisect    # the reference has `inputs`

Exit codes: 0 all candidates are the same, 1 one is different, else 2 where one
could not be looked at (a command failed, stale, misuse, too much not seen).)";

}  // namespace

void add_run(CLI::App& app, Run& run_command) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Collect, estimate and check what a file lists: for CI");
  command->add_option("FILE", options->file, "What to run (YAML)")->capture_default_str();
  add_option(*command, {.names = "--work", .type = "DIR", .help = "Directory for what is made", .shows_default = true},
             options->work);
  add_option(*command, {"--only", "PATTERN", "Only candidates whose name fits this glob"}, options->only);
  add_option(*command, {"--plan", "", "Run nothing; list what would run and what is there already"}, options->plan);
  add_option(*command, {"--refresh", "", "Make a stale reference or tolerance again"}, options->refresh);
  add_option(*command,
             {"--bisect", "",
              "For `git bisect run`: exit with 125 instead of 2, which skips a commit that could not be looked at, and "
              "with 128 where no other commit helps, as with a stale reference"},
             options->bisect);
  add_option(*command, option::kJson, options->json);
  add_option(*command, {"--junit", "FILE", "Write it as JUnit XML, a suite per candidate (-: stdout)"}, options->junit);
  add_option(*command, {"--markdown", "FILE", "Write a summary in Markdown (-: stdout)"}, options->markdown);
  add_option(*command, option::kHtml, options->html);
  add_option(*command, option::kSarif, options->sarif);
  add_option(*command, option::kGithub, options->github);
  add_option(*command, option::kHistory, options->history);
  add_option(*command, option::kThreads, options->threads);
  command
      ->add_option("-j,--jobs", options->jobs,
                   "Commands to run side by side, perturbed runs and candidates; what one prints goes to trace.log "
                   "beside its trace")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, kMostSideBySide));
  command->footer(kFooter);
  command->callback([options, &run_command] { run_command = [options] { return run(*options); }; });
}

}  // namespace ttrace::cli
