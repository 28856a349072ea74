#include "workflow/artifacts.h"

#include <fmt/format.h>

#include <cstdlib>

#include "process/launch.h"
#include "process/shell_words.h"
#include "ttrace/error.h"
#include "ttrace/load/trace_reader.h"
#include "workflow/collect.h"
#include "workflow/estimate_tolerance.h"
#include "workflow/fingerprint.h"
#include "workflow/git.h"
#include "workflow/software.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

void say(const std::string& text) { fmt::print(stderr, "ttrace: {}\n", printable(text)); }

void say_what_is_made(const std::string& piece, const CacheState& state) {
  const bool again = state.freshness == Freshness::kStale;
  say(again ? fmt::format("{}: made again: {}", piece, describe(state)) : fmt::format("{}: made now", piece));
}

std::string run_piece(std::optional<std::uint64_t> seed) {
  return seed ? fmt::format("runs/perturbed-{}", *seed) : "runs/rerun";
}

}  // namespace

std::string piece_of(const Job& candidate) { return "candidates/" + candidate.name; }

std::string second_piece_of(const Job& candidate) { return "second-runs/" + candidate.name; }

Pieces::Pieces(const RunFile& file, Workspace& work, std::set<fs::path> apart)
    : file_(file), work_(work), apart_(std::move(apart)) {
  // What these say has parts of keys of their own.
  apart_.insert(fs::weakly_canonical(file.path));
  if (!file.annotations.empty()) apart_.insert(fs::weakly_canonical(file.annotations));
}

const Key& Pieces::code() {
  if (code_) return *code_;
  const auto files = git_files(apart_);
  if (!files) {
    throw InputError(
        fmt::format("{}: what runs here is in no git repository with a commit; expected `inputs`, a list of the files "
                    "that it is made of, for the reference and each candidate",
                    file_.path));
  }
  code_.emplace();
  for (const auto& [path, id] : *files) code_->emplace("code " + path, id);
  return *code_;
}

Key Pieces::key_of(const Job& job) {
  Key key;
  if (job.inputs.empty()) {
    key = code();
  } else {
    for (const auto& [path, print] : fingerprints_of(job.inputs)) key.emplace("input " + path, print);
  }
  key.merge(torch_versions(job.command));
  key["command"] = shell_line(job.command);
  key["axes"] = job.axes;
  key["iterations"] = file_.iterations;
  key["ttrace"] = TTRACE_VERSION;
  for (const std::string& name : file_.environment) {
    if (const char* value = std::getenv(name.c_str())) key["environment " + name] = value;
  }
  return key;
}

Key Pieces::tolerance_key(const std::string& reference_run) const {
  return {{"reference run", reference_run},
          {"annotations", file_.annotations.empty() ? "none" : fingerprint_of(file_.annotations)},
          {"seeds", fmt::format("{}", file_.seeds)},
          {"estimator", std::string(name_of(file_.estimator))},
          {"margin", fmt::format("{}", file_.margin)},
          {"ttrace", TTRACE_VERSION}};
}

Key Pieces::run_key(const std::string& reference_run, std::optional<std::uint64_t> seed) {
  Key key = key_of(file_.reference);
  key["reference run"] = reference_run;
  if (!seed) return key;
  key["perturbed with seed"] = fmt::format("{}", *seed);
  key["perturbed at"] = name_of(file_.estimator);
  key["annotations"] = file_.annotations.empty() ? "none" : fingerprint_of(file_.annotations);
  return key;
}

CacheState Pieces::reference_state() { return work_.state_of(kReference, key_of(file_.reference)); }

CacheState Pieces::tolerance_state() {
  const bool fits = reference_state().freshness == Freshness::kFits;
  return work_.state_of(kTolerance, tolerance_key(fits ? read_trace(work_.trace_of(kReference)).run_id : "another"));
}

CacheState Pieces::candidate_state(const Job& candidate) {
  return work_.state_of(piece_of(candidate), key_of(candidate));
}

void Pieces::require_fresh(const std::string& piece, const CacheState& state, bool refresh) const {
  if (state.freshness != Freshness::kStale || refresh) return;
  throw InputError(fmt::format("{}: stale: {}; expected what it was made from; --refresh makes it again",
                               work_.path_of(piece).string(), describe(state)));
}

void Pieces::collect_piece(const std::string& piece, const Job& job, const Key& key,
                           std::optional<std::uint64_t> seed) {
  CollectOptions run;
  run.annotations = file_.annotations;
  run.iterations = parse_iterations(file_.iterations);
  run.axes = job.axes;
  run.perturb = seed;
  run.perturb_at = file_.estimator;
  run.command = job.command;
  run.stdout_to_stderr = true;
  collect_as(piece, job.name, key, std::move(run));
}

void Pieces::collect_as(const std::string& piece, const std::string& name, const Key& key, CollectOptions run) {
  const fs::path made = work_.begin(piece);
  run.output = made / "trace";
  const int code = collect(run);
  if (const int signal = interrupted_by(); signal != 0) {
    throw InputError(fmt::format("interrupted by signal {}; what is whole is kept: run it again to go on", signal));
  }
  if (code != 0) {
    throw InputError(
        fmt::format("the trace of {} could not be collected, exit code {}; expected a command that ends with 0 (what "
                    "it left is in {} until the next run)",
                    name, code, run.output.string()));
  }
  work_.finish(made, piece, key);
}

void Pieces::make_reference(bool refresh) {
  const CacheState state = reference_state();
  require_fresh(kReference, state, refresh);
  if (state.freshness == Freshness::kFits) return;
  say_what_is_made(kReference, state);
  work_.remove(kTolerance);  // it is of the reference before
  collect_piece(kReference, file_.reference, key_of(file_.reference), std::nullopt);
}

fs::path Pieces::make_run(const std::string& reference_run, std::optional<std::uint64_t> seed) {
  const std::string piece = run_piece(seed);
  const Key key = run_key(reference_run, seed);
  const CacheState state = work_.state_of(piece, key);
  if (state.freshness != Freshness::kFits) {
    say_what_is_made(piece, state);
    collect_piece(piece, file_.reference, key, seed);
  }
  return work_.trace_of(piece);
}

void Pieces::make_tolerance(bool refresh) {
  const std::string reference_run = read_trace(work_.trace_of(kReference)).run_id;
  const Key key = tolerance_key(reference_run);
  const CacheState state = work_.state_of(kTolerance, key);
  require_fresh(kTolerance, state, refresh);
  if (state.freshness == Freshness::kFits) return;
  EstimateToleranceOptions options;
  options.reference = work_.trace_of(kReference);
  options.rerun = make_run(reference_run, std::nullopt);
  for (std::uint64_t seed = 1; seed <= file_.seeds; ++seed) {
    options.perturbed.push_back(make_run(reference_run, seed));
  }
  options.annotations = file_.annotations;
  options.estimator = file_.estimator;
  options.margin = file_.margin;
  say_what_is_made(kTolerance, state);
  const ToleranceFile tolerance = estimate_tolerance(options);
  const fs::path made = work_.begin(kTolerance);
  write_tolerances(tolerance, made / "tolerance.yaml");
  fmt::print(stderr, "{}", summary_of(tolerance, (work_.path_of(kTolerance) / "tolerance.yaml").string()));
  work_.finish(made, kTolerance, key);
  work_.remove("runs");  // each as large as the reference, and of no further use
}

void Pieces::make_candidate(const Job& candidate) {
  const CacheState state = candidate_state(candidate);
  if (state.freshness == Freshness::kFits) return;
  say_what_is_made(candidate.name, state);
  collect_piece(piece_of(candidate), candidate, key_of(candidate), std::nullopt);
}

void Pieces::make_second_run(const Job& candidate, const CollectOptions& run) {
  const std::string piece = second_piece_of(candidate);
  const Key key = {{"reference run", read_trace(work_.trace_of(kReference)).run_id},
                   {"candidate run", read_trace(work_.trace_of(piece_of(candidate))).run_id},
                   {"annotations", file_.annotations.empty() ? "none" : fingerprint_of(file_.annotations)},
                   {"parameters", run.rewrite.inject_params.empty() ? "its own" : "the reference's"},
                   {"ttrace", TTRACE_VERSION}};
  const CacheState state = work_.state_of(piece, key);
  if (state.freshness == Freshness::kFits) return;
  say_what_is_made(piece, state);
  collect_as(piece, "the second run of " + candidate.name, key, run);
}

}  // namespace ttrace
