// `ttrace check`: does the candidate compute what the reference computes, and if not, where does it first
// go wrong?
#include "workflow/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <memory>
#include <set>

#include "process/shell_words.h"
#include "terminal/progress_line.h"
#include "terminal/report_files.h"
#include "ttrace/align/aligned_trace.h"
#include "ttrace/diagnose/root_causes.h"
#include "ttrace/error.h"
#include "ttrace/history/history.h"
#include "ttrace/judge/declared_sums.h"
#include "ttrace/judge/judge.h"
#include "ttrace/load/tolerance_file.h"
#include "ttrace/load/trace_reader.h"
#include "ttrace/outcome.h"
#include "ttrace/rewrite/rewritten.h"
#include "workflow/annotations.h"
#include "workflow/guesses.h"

namespace ttrace {
namespace {

// Returns the command line of the same check that lists every finding.
std::string command_for_all(const CheckOptions& options) {
  std::string command = fmt::format("ttrace check --reference {} --candidate {}", shell_word(options.reference),
                                    shell_word(options.candidate));
  const auto add = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) command += fmt::format(" {} {}", name, shell_word(value));
  };
  add("-a", options.annotations.file);
  for (const std::string& setting : options.annotations.settings) add("--set", setting);
  add("--axes", options.annotations.axes);
  add("-t", options.tolerance);
  add("--only", options.only);
  return command + (options.strict ? " --strict --all" : " --all");
}

// Adds the alignment's notes about the annotations, except those of a trace of one rank, which needs no annotations.
void add_notes(const std::string& side, const AlignedTrace& aligned, std::vector<std::string>& notes) {
  if (aligned.trace->world_size == 1) return;
  for (const std::string& note : aligned.alignment.notes) notes.push_back(fmt::format("{}: {}", side, note));
}

void note_overrides(const ToleranceFile& tolerance, const Alignment& reference, std::vector<std::string>& notes) {
  std::set<ToleranceKey> tensors;
  for (const auto& [id, tensor] : reference.tensors) tensors.emplace(id.kind, id.name);
  for (std::string& note : unused_overrides(tolerance, tensors)) notes.push_back(std::move(note));
}

std::vector<Difference> measure(const Matching& matching, int threads) {
  std::vector<TensorPair> pairs = matching.pairs;
  pairs.insert(pairs.end(), matching.recomputed.begin(), matching.recomputed.end());
  const ProgressLine progress("comparing");
  return compare(pairs, {threads, progress.callback()});
}

CheckRecord make_record(const Trace& reference, const Trace& candidate) {
  CheckRecord check;
  check.reference_run = reference.run_id;
  check.candidate_run = candidate.run_id;
  check.started = candidate.provenance.started;
  check.git_commit = candidate.provenance.git_commit;
  check.command = shell_line(candidate.provenance.command);
  return check;
}

struct LoadedRuns {
  AlignedTrace reference, candidate;
  Annotations annotations;
  std::optional<ToleranceFile> tolerance;
};

LoadedRuns load_and_align(const CheckOptions& options) {
  Trace reference = read_trace(options.reference), candidate = read_trace(options.candidate);
  require_same_values(reference, candidate);
  LoadedRuns loaded;
  loaded.annotations = load_annotations(options.annotations);
  if (!options.tolerance.empty()) {
    loaded.tolerance = read_tolerances(options.tolerance);
    require_fits(*loaded.tolerance, reference, candidate);
  }
  loaded.reference = align_whole(std::move(reference), loaded.annotations);
  // The candidate is measured against the reference's number of layers, not against its own.
  loaded.candidate = align_trace(std::move(candidate), loaded.annotations, layout_of(loaded.reference.alignment));
  return loaded;
}

std::vector<std::string> collect_notes(const LoadedRuns& loaded, const std::vector<std::string>& settings) {
  const auto& [reference, candidate, annotations, tolerance] = loaded;
  std::vector<std::string> notes;
  if (!settings.empty()) notes.push_back(fmt::format("parameters of the annotations: {}", fmt::join(settings, ", ")));
  add_notes("reference", reference, notes);
  add_notes("candidate", candidate, notes);
  for (std::string& note : notes_of_declared_sums(annotations, candidate)) notes.push_back(std::move(note));
  if (tolerance) note_overrides(*tolerance, reference.alignment, notes);
  if (reference.trace->run_id == candidate.trace->run_id) {
    notes.push_back("reference and candidate are one and the same run");
  }
  return notes;
}

}  // namespace

Checked check(const CheckOptions& options) {
  // load, align
  LoadedRuns loaded = load_and_align(options);
  const std::vector<std::string> notes = collect_notes(loaded, options.annotations.settings);
  Alignment &reference = loaded.reference.alignment, &candidate = loaded.candidate.alignment;
  if (!options.only.empty()) keep_only(reference, candidate, options.only);

  // merge, compare: in one pass over memory, because merging copies nothing.
  const Matching matching = match(reference, candidate);
  const std::vector<Difference> differences = measure(matching, options.threads);

  // judge
  const ToleranceFile* tolerance = loaded.tolerance ? &*loaded.tolerance : nullptr;
  Report report = judge_all(reference, matching, differences, tolerance, options.waivers);
  report.reference = options.reference;
  report.candidate = options.candidate;
  report.strict = options.strict;
  report.command_for_all = command_for_all(options);
  report.notes.insert(report.notes.end(), notes.begin(), notes.end());
  const Trace& trace = *loaded.candidate.trace;
  if (!loaded.annotations.guesses.empty() && !report.same()) {
    for (std::string& note : notes_of_guesses(options.annotations, reference, trace, tolerance, report)) {
      report.notes.push_back(std::move(note));
    }
  }
  add_root_causes(report, {reference, candidate, trace.mesh, loaded.annotations.tied, has_rewritten_modules(trace)});
  return {std::move(report), make_record(*loaded.reference.trace, trace)};
}

}  // namespace ttrace
