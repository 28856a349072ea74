#include "workflow/artifacts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdlib>

#include "base/count_of.h"
#include "files/tolerance_file.h"
#include "host/launch.h"
#include "host/shell_words.h"
#include "host/write_file.h"
#include "load/trace_reader.h"
#include "workflow/annotations.h"
#include "workflow/collected.h"
#include "workflow/estimate_tolerance.h"
#include "workflow/fingerprint.h"
#include "workflow/git.h"
#include "workflow/init.h"
#include "workflow/keyed_seal.h"
#include "workflow/software.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// Returns the artifact's name in messages: a candidate has its own name there, as in the report.
std::string display_name(const std::string& artifact) {
  constexpr std::string_view kCandidates = "candidates/";
  return artifact.starts_with(kCandidates) ? artifact.substr(kCandidates.size()) : artifact;
}

void print_what_is_made(const std::string& artifact, const CacheState& state) {
  const std::string why = state.freshness == Freshness::kStale ? "made again: " + describe(state) : "made now";
  spdlog::info("{}", printable(fmt::format("{}: {}", display_name(artifact), why)));
}

// Returns a fingerprint of the annotations' files and parameters.
std::string annotations_fingerprint(const AnnotationSource& annotations) {
  std::string text = fmt::format("{}\n", fmt::join(annotations.settings, "\n"));
  if (annotations.file.empty()) text += "as the program says\n";
  for (const std::string& file : load_annotations(annotations).files) text += fingerprint_of(file) + "\n";
  return fingerprint(text);
}

// In the directory of a reference, and of a tolerance, of which the runs are replays in one launch.
constexpr const char* kOneLaunch = "one-launch";
constexpr const char* kReplayBegun = "begun";  // BEGUN of the collector's replays.py

// The part of a key that a loaded file has.
constexpr std::string_view kLoaded = "loaded ";

std::string fingerprint_if_there(const fs::path& file) {
  return fs::is_regular_file(file) ? fingerprint_of(file) : "not there";
}

bool lies_in(const fs::path& file, const fs::path& directory) {
  const fs::path relative = file.lexically_relative(directory);
  return !relative.empty() && *relative.begin() != "..";
}

// Returns the words of a job's command, also of a line for the shell, as far as spaces tell them apart.
std::vector<std::string> words_of(const Job& job) {
  std::vector<std::string> command = without_needless_shell(job.command);
  if (command != job.command || command.size() != 3 || command[1] != "-c") return command;
  std::istringstream line(command[2]);
  return {std::istream_iterator<std::string>(line), {}};
}

// `seed`: of the perturbation; none: of the rerun.
std::string rerun_artifact(std::optional<std::uint64_t> seed) {
  return seed ? fmt::format("runs/perturbed-{}", *seed) : "runs/rerun";
}

std::string in_minutes_or_seconds(double seconds) {
  return seconds < 90 ? fmt::format("{:.0f} s", seconds) : fmt::format("{:.0f} min", seconds / 60);
}

// What a command that is to run on one process may still say.
std::string what_to_take_out(const std::vector<std::string>& command) {
  const TrainingCommand looked_at = look_at(command);
  std::vector<std::string> found = looked_at.sizes_in_files;
  for (const auto& [axis, size] : looked_at.sizes) found.push_back(fmt::format("{} {}", axis, size));
  return "where it is parallel, take from it what makes it so" +
         (found.empty() ? "" : fmt::format(", such as {}", fmt::join(found, ", ")));
}

}  // namespace

std::string candidate_artifact(const Job& candidate) { return "candidates/" + candidate.name; }

std::string second_run_artifact(const Job& candidate) { return "second-runs/" + candidate.name; }

Artifacts::Artifacts(const RunFile& file, Workspace& workspace, std::set<fs::path> written, std::size_t jobs,
                     std::size_t& launches)
    : file_(file),
      workspace_(workspace),
      not_code_(std::move(written)),
      source_root_(Repository(".").top().value_or(fs::current_path())),
      jobs_(jobs),
      launches_(launches) {
  // A key lists the content of these files by itself, so they do not count as code.
  not_code_.insert(fs::weakly_canonical(file.path));
  for (const std::string& part : load_annotations(file.annotations).files) {
    not_code_.insert(fs::weakly_canonical(part));
  }
  for (const Job& job : candidate_jobs(file)) {
    if (!job.tolerance.empty()) not_code_.insert(fs::weakly_canonical(job.tolerance));
    if (job.annotations.empty()) continue;
    for (const std::string& part : load_annotations(annotations_for(file, job)).files) {
      not_code_.insert(fs::weakly_canonical(part));
    }
  }
}

const Key& Artifacts::code_key() {
  if (code_key_) return *code_key_;
  const auto files = Repository(".").files(not_code_);
  code_key_.emplace();
  for (const auto& [path, id] : files ? *files : files_of_folder()) code_key_->emplace("code " + path, id);
  return *code_key_;
}

// Returns what stands for the code where no git says it: all that is in the folder.
std::map<std::string, std::string> Artifacts::files_of_folder() const {
  constexpr std::uint64_t kMostBytes = 1U << 30U;
  const fs::path kept = fs::weakly_canonical(workspace_.root());
  if (bytes_below(".", kept) > kMostBytes) {
    throw InputError(
        fmt::format("{}: what runs here is in no git repository with a commit, and more than 1 GiB is in this folder; "
                    "expected `inputs`, a list of the files that it is made of, for the reference and each candidate",
                    file_.path));
  }
  spdlog::warn(
      "{}: what runs here is in no git repository with a commit, so that all files of this folder count as what it is "
      "made of; `inputs` of the reference and of each candidate lists others",
      file_.path);
  std::map<std::string, std::string> files;
  for (const auto& [path, print] : fingerprints_of({"."}, kept)) {
    if (!not_code_.contains(fs::weakly_canonical(path))) files.emplace(fs::path(path).lexically_normal(), print);
  }
  return files;
}

// Adds the files that the command names, such as configurations, where git need not know them.
void Artifacts::add_files_of_command(const Job& job, Key& key) const {
  for (const std::string& word : words_of(job)) {
    for (const std::string& name : {word, word.substr(word.find('=') + 1)}) {
      std::error_code ignored;
      const fs::path file = fs::weakly_canonical(name, ignored);
      if (name.empty() || !fs::is_regular_file(file, ignored) || !lies_in(file, source_root_)) continue;
      if (!key.contains("code " + file.lexically_relative(source_root_).string()))
        key["file " + name] = fingerprint_of(file);
    }
  }
}

// Adds the program's own source files that the run had loaded and the key lacks: what `inputs` forgets must not make an
// old trace pass for one of the present program.
void Artifacts::add_loaded_files(const fs::path& trace, Key& key) const {
  std::set<fs::path> known;
  for (const auto& [part, value] : key) {
    if (part.starts_with("input ")) known.insert(fs::weakly_canonical(part.substr(6)));
    if (part.starts_with("code ")) known.insert(source_root_ / part.substr(5));
  }
  for (const std::string& name : read_trace(trace).provenance.program_files) {
    const fs::path file = (source_root_ / name).lexically_normal();
    if (!lies_in(file, source_root_) || known.contains(file)) continue;
    key[std::string(kLoaded) + name] = fingerprint_if_there(file);
  }
}

// The parts of the artifact's key that are files which it had loaded, with their present content in its place.
Key Artifacts::loaded_now(const Key& stored) const {
  Key now;
  for (const auto& [part, value] : stored) {
    if (part.starts_with(kLoaded)) now[part] = fingerprint_if_there(source_root_ / part.substr(kLoaded.size()));
  }
  return now;
}

// Compares what the artifact was made from with `now` and the present content of the files that it had loaded.
CacheState Artifacts::state_of(const std::string& artifact, const Key& now) const {
  Key all = loaded_now(workspace_.stored_key(artifact).value_or(Key()));
  all.insert(now.begin(), now.end());
  return workspace_.state_of(artifact, all);
}

// Returns those that the file names; none: as `collect` has it by default.
RecordedIterations Artifacts::stated_iterations() const {
  return {file_.iterations.empty() ? std::vector<std::int32_t>{} : parse_iterations(file_.iterations), file_.then};
}

// Returns what all other runs are to record: what the reference did, where there is one.
RecordedIterations Artifacts::iterations_of_reference() const {
  const fs::path reference = workspace_.trace_of(kReference);
  if (!file_.iterations.empty() || !fs::exists(reference)) return stated_iterations();
  return iterations_of(read_trace(reference));
}

Key Artifacts::job_key(const Job& job) {
  Key key;
  if (job.inputs.empty()) {
    key = code_key();
    add_files_of_command(job, key);
  } else {
    for (const auto& [path, print] : fingerprints_of(job.inputs)) key.emplace("input " + path, print);
  }
  key["command"] = shell_line(job.command);
  key["axes"] = job.axes;
  if (!file_.iterations.empty()) {
    key["iterations"] = file_.iterations;
  } else {  // which further ones a reference needs, its recording tells
    const bool is_reference = &job == &file_.reference;
    const std::vector<std::int32_t> further =
        is_reference ? std::vector<std::int32_t>{} : iterations_of_reference().whole;
    key["iterations"] = further.empty() ? "0" : fmt::format("{}", fmt::join(further, ","));
  }
  if (file_.then > 0) key["then"] = fmt::format("{}", file_.then);
  key["ttrace"] = TTRACE_VERSION;
  for (const std::string& name : file_.environment) {
    if (const char* value = std::getenv(name.c_str())) key["environment " + name] = value;
  }
  return key;
}

Key Artifacts::tolerance_key(const std::string& reference_run) const {
  Key key = {{"reference run", reference_run},
             {"annotations", annotations_fingerprint(annotations_of_reference(file_))},
             {"seeds", fmt::format("{}", file_.seeds)},
             {"estimator", std::string(name_of(file_.estimator))},
             {"margin", fmt::format("{}", file_.margin)},
             {"tolerance file", std::string(kToleranceVersion)},
             {"ttrace", TTRACE_VERSION}};
  if (has_seal_key()) key["sealed"] = "by key";
  return key;
}

Key Artifacts::rerun_key(const std::string& reference_run, std::optional<std::uint64_t> seed) {
  Key key = job_key(file_.reference);
  key["reference run"] = reference_run;
  if (!seed) return key;
  key["perturbed with seed"] = fmt::format("{}", *seed);
  key["perturbed at"] = name_of(file_.estimator);
  key["annotations"] = annotations_fingerprint(annotations_of_reference(file_));
  return key;
}

std::string Artifacts::reference_run_id() const { return read_trace(workspace_.trace_of(kReference)).run_id; }

// Files that the reference had loaded and its `inputs` lack do not make it stale: that list says on purpose what other
// commits may change.
CacheState Artifacts::reference_state() {
  Key now = job_key(file_.reference);
  const Key stored = workspace_.stored_key(kReference).value_or(Key());
  for (const auto& [part, value] : stored) {
    if (part.starts_with(kLoaded)) now[part] = value;
  }
  return workspace_.state_of(kReference, now);
}

void Artifacts::note_unlisted_changes() {
  const Key stored = workspace_.stored_key(kReference).value_or(Key());
  for (const auto& [part, value] : loaded_now(stored)) {
    if (stored.at(part) == value) continue;
    notes_.push_back(fmt::format(
        "the reference had loaded {}, which has changed since and is not among its `inputs`: list it there, or "
        "--refresh where the reference would compute something else now",
        printable(part.substr(kLoaded.size()))));
  }
}

CacheState Artifacts::tolerance_state() {
  const bool has_reference = reference_state().freshness == Freshness::kFits;
  return workspace_.state_of(kTolerance, tolerance_key(has_reference ? reference_run_id() : "another"));
}

CacheState Artifacts::candidate_state(const Job& candidate) {
  return state_of_run(candidate_artifact(candidate), job_key(candidate));
}

// Says how the run's software is not the reference's. A candidate that is another program has an environment of its
// own.
std::optional<SoftwareDifference> Artifacts::other_software(const std::string& artifact) const {
  if (!file_.correspondence.empty() && artifact.starts_with(candidate_artifact({}))) return std::nullopt;
  return software_difference(workspace_.trace_of(kReference), workspace_.trace_of(artifact));
}

// Compares keys, and the software: a run that fits its key is stale all the same where the reference was made on other
// software since.
CacheState Artifacts::state_of_run(const std::string& artifact, const Key& key) {
  CacheState state = state_of(artifact, key);
  if (state.freshness != Freshness::kFits || reference_state().freshness != Freshness::kFits) return state;
  if (const auto other = other_software(artifact)) {
    state.freshness = Freshness::kStale;
    state.reasons = {fmt::format("{}: was {}, the reference's is {}", other->name, other->run, other->reference)};
  }
  return state;
}

// Returns how long the reference and its tolerance take, as the reference was timed; nothing where it wasn't.
std::optional<double> Artifacts::seconds_to_renew() const {
  const auto seconds = workspace_.seconds_of(kReference);
  const bool in_one_launch = fs::exists(workspace_.path_of(kReference) / kOneLaunch);
  const double runs = in_one_launch ? 1 : 2.0 + static_cast<double>(file_.seeds);  // itself, its rerun, the perturbed
  return seconds ? std::optional(*seconds * runs) : std::nullopt;
}

bool Artifacts::makes_again(const CacheState& state, Renewal renewal) const {
  if (state.freshness != Freshness::kStale || renewal == Renewal::kAll) return true;
  const auto seconds = seconds_to_renew();
  return renewal == Renewal::kCheap && seconds && *seconds <= kMostCheapSeconds;
}

// Notes what is made again, and throws SetupError where it may not be.
void Artifacts::require_renewal(const std::string& artifact, const CacheState& state, Renewal renewal) {
  if (state.freshness != Freshness::kStale) return;
  if (makes_again(state, renewal)) {
    notes_.push_back(fmt::format("the {} was made again: {}", artifact, describe(state)));
    return;
  }
  const auto seconds = seconds_to_renew();
  throw SetupError(fmt::format("{}: stale: {}; expected what it was made from; --refresh makes it again{}",
                               workspace_.path_of(artifact).string(), describe(state),
                               seconds ? ", in about " + in_minutes_or_seconds(*seconds) : ""));
}

void Artifacts::set_iterations(const RecordedIterations& recorded, CollectOptions& options) {
  options.iterations = recorded.whole;
  options.then = recorded.then;
}

// Where the reference never calls a model with gradients, what it calls without is recorded of all others as well.
void Artifacts::record_as_reference(CollectOptions& options) const {
  const fs::path reference = workspace_.trace_of(kReference);
  if (!fs::exists(reference)) return set_iterations(stated_iterations(), options);
  const Trace trace = read_trace(reference);
  set_iterations(file_.iterations.empty() ? iterations_of(trace) : stated_iterations(), options);
  options.selection = trace.provenance.selection;
}

CollectOptions Artifacts::options_for(const Job& job) const {
  CollectOptions options;
  options.annotations = &job == &file_.reference ? annotations_of_reference(file_) : annotations_for(file_, job);
  if (&job == &file_.reference) {
    set_iterations(stated_iterations(), options);
  } else {
    record_as_reference(options);
  }
  options.axes = job.axes;
  options.check_follows = true;
  options.command = job.command;
  options.stdout_to_stderr = true;
  options.timeout = job.timeout;
  return options;
}

// Keeps what was collected in `unfinished`. Throws InputError where the command failed, and Interrupted.
void Artifacts::finish_run(const Run& run, const fs::path& unfinished, int code, std::optional<double> seconds) {
  if (code >= 0) ++launches_;  // else a signal came before it was started
  if (code == 0) {
    Key key = run.key;
    add_loaded_files(unfinished / "trace", key);
    workspace_.finish(unfinished, run.artifact, key, seconds);
  }
  if (const int signal = interrupted_by(); signal != 0) {
    throw Interrupted(fmt::format("interrupted by signal {}; what is whole is kept: run it again to go on", signal));
  }
  if (code != 0) {
    const bool too_late = code == kExitTimeout && run.options.timeout.count() > 0;
    const std::string what = too_late ? fmt::format("did not end within {} s", run.options.timeout.count())
                                      : fmt::format("exit code {}", code);
    throw InputError(fmt::format(
        "the trace of {} could not be collected, {}; expected a command that ends with 0, and a whole trace "
        "of it (it is on line {} of {}{}; what it left is in {} until the next run)",
        display_name(run.artifact), what, run.line, file_.path,
        run.artifact == kReference ? ": " + what_to_take_out(run.options.command) : "",
        (unfinished / "trace").string()));
  }
}

void Artifacts::collect_run(const Run& run) {
  const fs::path unfinished = workspace_.begin(run.artifact);
  CollectOptions options = run.options;
  options.output = unfinished / "trace";
  const auto start = std::chrono::steady_clock::now();
  const int code = collect(options);
  finish_run(run, unfinished, code, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

// Throws InputError where the run used other software than the reference. Such a run is kept: it fits again once the
// reference has been made on the same software.
void Artifacts::require_same_software(const std::string& artifact) const {
  if (const auto other = other_software(artifact)) {
    throw InputError(fmt::format(
        "{0}: stale: it ran on {1} {2}, {3} on {4}; expected the same (rm -r {0} makes the next run collect "
        "it again)",
        workspace_.path_of(kReference).string(), other->name, other->reference, display_name(artifact), other->run));
  }
}

// Collects a run that will be compared with the reference, unless there is one that fits. Returns its trace.
fs::path Artifacts::make_run(const Run& run) {
  if (const auto failed = failed_.find(run.artifact); failed != failed_.end()) throw InputError(failed->second);
  const CacheState state = state_of_run(run.artifact, run.key);
  if (state.freshness != Freshness::kFits) {
    print_what_is_made(run.artifact, state);
    collect_run(run);
    require_same_software(run.artifact);
  }
  return workspace_.trace_of(run.artifact);
}

void Artifacts::collect_side_by_side(std::vector<Run> runs) {
  if (jobs_ <= 1) return;  // each is collected when it is needed
  std::erase_if(runs,
                [&](const Run& run) { return state_of_run(run.artifact, run.key).freshness == Freshness::kFits; });
  if (runs.size() <= 1) return;
  std::vector<fs::path> unfinished;
  std::vector<CollectOptions> options;
  for (const Run& run : runs) {
    print_what_is_made(run.artifact, state_of_run(run.artifact, run.key));
    unfinished.push_back(workspace_.begin(run.artifact));
    options.push_back(run.options);
    options.back().output = unfinished.back() / "trace";
  }
  const std::vector<int> codes = collect_each(
      options, jobs_, [&](std::size_t i) { spdlog::info("{}: collected", printable(display_name(runs[i].artifact))); });
  std::optional<Interrupted> interrupted;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    try {
      finish_run(runs[i], unfinished[i], codes[i], std::nullopt);
      require_same_software(runs[i].artifact);
    } catch (const InputError& error) {
      failed_[runs[i].artifact] = error.what();
    } catch (const Interrupted& error) {
      interrupted = error;  // what others have finished is kept
    }
  }
  if (interrupted) throw *interrupted;
}

void Artifacts::make_reference(Renewal renewal, bool with_runs) {
  const CacheState state = reference_state();
  require_renewal(kReference, state, renewal);
  if (state.freshness == Freshness::kFits) return note_unlisted_changes();
  print_what_is_made(kReference, state);
  for (const char* of_former : {kTolerance, kWhole}) workspace_.remove(of_former);
  const Run reference{kReference, job_key(file_.reference), options_for(file_.reference), file_.reference.line};
  if (!with_runs || !collect_with_replays(reference)) collect_run(reference);
}

// Collects the reference and, in the same launch, what its tolerance is estimated from. Returns false where the program
// could not go on after it was recorded: it is to be launched again, and left alone then.
bool Artifacts::collect_with_replays(const Run& reference) {
  workspace_.remove("runs");
  const fs::path unfinished = workspace_.begin(reference.artifact);
  CollectOptions options = reference.options;
  options.output = unfinished / "trace";
  std::vector<std::optional<std::uint64_t>> seeds;
  for (std::uint64_t seed = 1; seed <= file_.seeds; ++seed) seeds.emplace_back(seed);
  seeds.emplace_back(std::nullopt);
  std::vector<fs::path> traces;
  for (const auto& seed : seeds) {
    traces.push_back(workspace_.begin(rerun_artifact(seed)) / "trace");
    options.replays.push_back({traces.back(), seed});
  }
  options.perturb_at = file_.estimator;
  const auto start = std::chrono::steady_clock::now();
  const int code = collect(options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const bool has_begun = fs::remove(traces.front() / kReplayBegun);
  const auto remove_replays = [&] {
    for (const fs::path& trace : traces) fs::remove_all(trace.parent_path());
  };
  if (code > 0 && interrupted_by() == 0 && has_begun) {
    ++launches_;
    spdlog::info("reference: launched again, to be recorded once: the program ended with {} where it was led back",
                 code);
    remove_replays();
    return false;
  }
  const std::string problem = code == 0 ? problem_of_replays(options.output, traces) : "";
  if (code == 0 && problem.empty()) write_file(unfinished / kOneLaunch, "");
  if (code != 0 || !problem.empty()) remove_replays();
  finish_run(reference, unfinished, code, seconds);
  if (!problem.empty()) {
    spdlog::info("reference: its rerun and perturbed runs take launches of their own: {}", printable(problem));
    return true;
  }
  const std::string run = reference_run_id();
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    Key key = rerun_key(run, seeds[i]);
    add_loaded_files(traces[i], key);
    write_file(traces[i].parent_path() / kOneLaunch, "");
    workspace_.finish(traces[i].parent_path(), rerun_artifact(seeds[i]), key);
  }
  spdlog::info("reference: its rerun and {} were recorded in its own launch, whose log has them, too",
               count_of(file_.seeds, "perturbed run"));
  return true;
}

bool Artifacts::makes_tolerance_from_launches() {
  const fs::path mark = workspace_.path_of(kTolerance) / kOneLaunch;
  if (!fs::exists(mark)) return false;
  spdlog::info("a launch of its own tells whether the reference repeats itself");
  workspace_.remove("runs");  // a run that was killed may have left the replays
  const fs::path rerun = make_run(rerun_of(reference_run_id(), std::nullopt));
  const std::string problem = repetition_of(workspace_.trace_of(kReference), rerun).problem;
  if (problem.empty()) {
    fs::remove(mark);
    workspace_.remove("runs");
    return false;
  }
  spdlog::info("the tolerance is made again, from launches: {}", printable(problem));
  workspace_.remove(kTolerance);
  make_tolerance(Renewal::kAll);
  return true;
}

Artifacts::Run Artifacts::rerun_of(const std::string& reference_run, std::optional<std::uint64_t> seed) {
  Run run{rerun_artifact(seed), rerun_key(reference_run, seed), options_for(file_.reference), file_.reference.line};
  record_as_reference(run.options);
  run.options.perturb = seed;
  run.options.perturb_at = file_.estimator;
  return run;
}

void Artifacts::make_tolerance(Renewal renewal) {
  const std::string reference_run = reference_run_id();
  const Key key = tolerance_key(reference_run);
  const CacheState state = workspace_.state_of(kTolerance, key);
  require_renewal(kTolerance, state, renewal);
  if (state.freshness == Freshness::kFits) return;
  EstimateToleranceOptions options;
  options.reference = workspace_.trace_of(kReference);
  std::vector<Run> runs = {rerun_of(reference_run, std::nullopt)};
  for (std::uint64_t seed = 1; seed <= file_.seeds; ++seed) runs.push_back(rerun_of(reference_run, seed));
  collect_side_by_side(runs);
  options.rerun = make_run(runs.front());
  for (std::size_t i = 1; i < runs.size(); ++i) options.perturbed.push_back(make_run(runs[i]));
  options.annotations = annotations_of_reference(file_);
  options.estimator = file_.estimator;
  options.margin = file_.margin;
  print_what_is_made(kTolerance, state);
  const ToleranceFile tolerance = estimate_tolerance(options, [&](std::size_t further) {
    std::vector<Run> more;
    for (std::uint64_t seed = file_.seeds + 1; seed <= file_.seeds + further; ++seed)
      more.push_back(rerun_of(reference_run, seed));
    collect_side_by_side(more);
    std::vector<fs::path> traces;
    for (const Run& run : more) traces.push_back(make_run(run));
    return traces;
  });
  const fs::path unfinished = workspace_.begin(kTolerance);
  if (fs::exists(workspace_.path_of(runs.front().artifact) / kOneLaunch)) write_file(unfinished / kOneLaunch, "");
  write_tolerances(tolerance, unfinished / "tolerance.yaml");
  std::istringstream summary(summary_of(tolerance, (workspace_.path_of(kTolerance) / "tolerance.yaml").string()));
  for (std::string line; std::getline(summary, line);) spdlog::info("{}", printable(line));
  workspace_.finish(unfinished, kTolerance, key);
  workspace_.remove("runs");  // each is as large as the reference, and of no further use
}

Artifacts::Run Artifacts::candidate_run(const Job& candidate) {
  return {candidate_artifact(candidate), job_key(candidate), options_for(candidate), candidate.line};
}

void Artifacts::prepare_candidates(const std::vector<Job>& candidates) {
  if (jobs_ <= 1) return;  // no key is needed: one reads all inputs
  std::vector<Run> runs;
  for (const Job& candidate : candidates) runs.push_back(candidate_run(candidate));
  collect_side_by_side(std::move(runs));
}

void Artifacts::make_candidate(const Job& candidate) { make_run(candidate_run(candidate)); }

void Artifacts::make_second_run(const Job& candidate, const CollectOptions& options) {
  const std::string candidate_run = read_trace(workspace_.trace_of(candidate_artifact(candidate))).run_id;
  const Key key = {{"reference run", reference_run_id()},
                   {"candidate run", candidate_run},
                   {"annotations", annotations_fingerprint(options.annotations)},
                   {"parameters", options.rewrite.inject_params.empty() ? "its own" : "the reference's"},
                   {"ttrace", TTRACE_VERSION}};
  CollectOptions in_time = options;
  in_time.timeout = candidate.timeout;
  in_time.command = candidate.command;  // the file's, whatever a trace that was kept names
  in_time.working_directory.clear();
  make_run({second_run_artifact(candidate), key, in_time, candidate.line});
}

}  // namespace ttrace
