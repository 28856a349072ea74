// `ttrace check`: does the candidate compute what the reference computes, and if not, where does it first
// go wrong?
#include "workflow/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <span>

#include "align/aligned_trace.h"
#include "base/error.h"
#include "base/outcome.h"
#include "diagnose/localization.h"
#include "diagnose/root_causes.h"
#include "diagnose/sources.h"
#include "distribute/comparison.h"
#include "distribute/index.h"
#include "distribute/steps.h"
#include "files/tolerance_file.h"
#include "history/history.h"
#include "host/progress.h"
#include "host/shell_words.h"
#include "judge/declared_sums.h"
#include "judge/judge.h"
#include "load/mapped_file.h"
#include "load/trace_reader.h"
#include "merge/rewritten.h"
#include "page/depict.h"
#include "step/judge_steps.h"
#include "tolerance/default_tolerance.h"
#include "workflow/annotations.h"
#include "workflow/guesses.h"
#include "workflow/option_values.h"
#include "workflow/page_facts.h"
#include "workflow/reference_order.h"
#include "workflow/report_files.h"
#include "workflow/translated.h"

namespace ttrace {
namespace {

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

std::vector<Difference> measure(const Matching& matching, const CheckOptions& options, Team& team) {
  std::vector<TensorPair> pairs = matching.pairs;
  pairs.insert(pairs.end(), matching.recomputed.begin(), matching.recomputed.end());
  ProgressLine progress("comparing");
  return compare(pairs, {options.threads, progress.callback(), options.checksums}, team);
}

CheckRecord make_record(const CheckOptions& options, const Trace& reference, const Trace& candidate) {
  CheckRecord check;
  check.reference_run = reference.run_id;
  check.candidate_run = candidate.run_id;
  if (!options.iterations.empty()) {  // a check of others is another one
    check.candidate = fmt::format("iteration {}", fmt::join(options.iterations, ","));
    check.candidate_run += ", " + check.candidate;
  }
  check.started = candidate.provenance.started;
  check.git_commit = candidate.provenance.git_commit;
  check.command = shell_line(candidate.provenance.command);
  return check;
}

struct LoadedRuns {
  AlignedTrace reference, candidate;
  Annotations annotations;
  std::optional<ToleranceFile> tolerance;
  // Both sides in the reference's names, where there is a correspondence. The alignments of `reference` and `candidate`
  // are then as they were recorded.
  std::optional<Translation> translation;

  Alignment& compared_reference() { return translation ? translation->reference : reference.alignment; }
  Alignment& compared_candidate() { return translation ? translation->candidate : candidate.alignment; }
};

// Everything equals itself.
void require_two_runs(const Trace& reference, const Trace& candidate) {
  if (reference.run_id != candidate.run_id) return;
  throw InputError(
      fmt::format("{}: holds the same run as the reference {} ({}), and every run equals itself; expected another run, "
                  "or --allow-same-run",
                  candidate.directory.string(), reference.directory.string(), reference.run_id));
}

// Where the programs differ, annotations are of the candidate's names.
Annotations annotations_of_reference(const CheckOptions& options, const Annotations& of_candidate) {
  if (!options.reference_annotations.file.empty()) return load_annotations(options.reference_annotations);
  return options.correspondence.empty() ? of_candidate : Annotations{};
}

LoadedRuns load_and_align(const CheckOptions& options, Team& team) {
  const bool is_default = options.tolerance == kDefaultTolerance;
  std::future<ToleranceFile> tolerance;  // its YAML is read while the traces' indexes are
  if (!options.tolerance.empty() && !is_default) {
    tolerance = std::async(std::launch::async, read_tolerances, std::filesystem::path(options.tolerance));
  }
  Trace reference = read_trace(options.reference, team, options.threads);
  Trace candidate = read_trace(options.candidate, team, options.threads);
  require_same_values(reference, candidate);
  LoadedRuns loaded;
  loaded.annotations = load_annotations(options.annotations, candidate);
  if (is_default && options.strict) {
    throw InputError(
        "--strict: the default tolerances (-t default) were not measured; expected a file of measured ones");
  }
  if (tolerance.valid()) {
    loaded.tolerance = tolerance.get();
    std::optional<Trace> again;
    if (!options.tolerance_reference.empty()) again = read_trace(options.tolerance_reference, options.threads);
    const Trace& measured = again ? *again : reference;
    require_fits(*loaded.tolerance, measured, digest_of(measured), candidate);
    if (!options.accept_overrides) require_modest_overrides(*loaded.tolerance);
  }
  if (!options.allow_same_run) require_two_runs(reference, candidate);
  const Annotations of_reference = annotations_of_reference(options, loaded.annotations);
  loaded.reference = align_whole(std::move(reference), of_reference, {}, options.threads);
  settle_order_of_reference(loaded.reference, of_reference, options.candidate, loaded.annotations,
                            options.correspondence);
  // The candidate is measured against the reference's number of layers, not against its own.
  if (options.correspondence.empty()) {
    loaded.candidate =
        align_trace(std::move(candidate), loaded.annotations, layout_of(loaded.reference.alignment), options.threads);
    return loaded;
  }
  TranslatedRun run =
      align_by_correspondence(options.correspondence, loaded.reference, std::move(candidate), loaded.annotations);
  loaded.candidate = std::move(run.candidate);
  loaded.translation = std::move(run.translation);
  return loaded;
}

// The kinds that may be narrower than the reference's, as the annotations say it, or else the candidate's program.
std::set<Kind> narrower_kinds(const LoadedRuns& loaded) {
  const ProgramWords* program = loaded.candidate.trace->program.get();
  const bool asks_program = loaded.annotations.narrower.empty() && program != nullptr;
  return asks_program ? program->words.narrower : loaded.annotations.narrower;
}

std::vector<std::string> collect_notes(const LoadedRuns& loaded, const std::vector<std::string>& settings) {
  const AlignedTrace &reference = loaded.reference, &candidate = loaded.candidate;
  std::vector<std::string> notes;
  if (!settings.empty()) notes.push_back(fmt::format("parameters of the annotations: {}", fmt::join(settings, ", ")));
  add_notes("reference", reference, notes);
  add_notes("candidate", candidate, notes);
  for (std::string& note : notes_of_declared_sums(loaded.annotations, candidate)) notes.push_back(std::move(note));
  if (loaded.tolerance) note_overrides(*loaded.tolerance, reference.alignment, notes);
  if (reference.trace->run_id == candidate.trace->run_id) {
    notes.push_back("reference and candidate are one and the same run (--allow-same-run)");
  }
  return notes;
}

// A reference is one process, most of the time, and a candidate several.
void note_swapped(const Trace& reference, const Trace& candidate, Report& report) {
  if (report.same() || reference.world_size == 1 || candidate.world_size > 1) return;
  report.notes.push_back(
      fmt::format("the reference has {} ranks and the candidate one: are --reference and --candidate swapped?",
                  reference.world_size));
}

// Throws InputError where tolerances allow what nothing can have measured, or lack what was.
void require_sound(const ToleranceFile& tolerance, const Alignment& reference) {
  const StoredTensors stored = stored_tensors(reference);
  require_statistics(tolerance, stored);
  require_coherence(tolerance, reference);
  require_plausible_floors(tolerance, stored);
}

// True where the annotations, the program or its recorded tensors say how the ranks hold them.
bool is_mapping_known(const CheckOptions& options, const Trace& candidate) {
  if (!options.correspondence.empty()) return true;  // a draft is made from a reference of the same names
  return candidate.world_size == 1 || names_annotations(options.annotations) || says_mapping(candidate);
}

// True where ranks are missing, unfinished or there twice, which is said before anything else.
bool has_broken_ranks(const Report& report) {
  return std::any_of(report.findings.begin(), report.findings.end(), [](const Finding& finding) {
    return finding.reason == Reason::kMissingRank || finding.reason == Reason::kIncompleteRank ||
           finding.reason == Reason::kDuplicateRank;
  });
}

// The name of an initial parameter that is not the reference's, though every rank holds all of it: whatever annotations
// say. Empty where there is none.
std::string other_parameter(const Alignment& candidate, const Report& report) {
  if (candidate.tensors.empty()) return "";
  const std::int32_t first = candidate.tensors.begin()->first.iteration;
  for (const Finding& finding : report.findings) {
    if (finding.reason != Reason::kExceedsTolerance || finding.id.kind != Kind::kParam) continue;
    const auto tensor = candidate.tensors.find(finding.id);
    if (tensor == candidate.tensors.end() || finding.id.iteration != first) continue;
    const std::vector<AxisPlacement>& placed = tensor->second.deduced;
    const bool is_whole = std::all_of(placed.begin(), placed.end(), [](const AxisPlacement& axis) {
      return axis.placement == Placement::kReplicate;
    });
    if (is_whole) return finding.id.name;
  }
  return "";
}

struct Lacking {
  std::string what;     // empty: nothing
  std::string command;  // that makes it
};

// What the check lacks, where findings would be about that alone.
Lacking what_it_lacks(const CheckOptions& options, const LoadedRuns& loaded, const Report& report) {
  if (report.verdict() != RunVerdict::kDifferent) return {};
  const Trace &reference = *loaded.reference.trace, &candidate = *loaded.candidate.trace;
  const std::int64_t wrong = report.counts.fail + report.counts.missing;
  const std::int64_t tensors = report.counts.compared + report.counts.missing;
  if (!is_mapping_known(options, candidate)) {
    const std::string other = other_parameter(loaded.candidate.alignment, report);
    const std::string or_else =
        other.empty() ? ""
                      : fmt::format(
                            "; or the runs began with different parameters: {}, which every rank holds whole, is "
                            "not the reference's",
                            printable(other));
    return {fmt::format("no annotations (-a), and neither the program nor its tensors say how {} ranks hold them: as "
                        "their shapes place them, {} of {} differ; `ttrace annotate` drafts a file for -a{}",
                        candidate.world_size, wrong, tensors, or_else),
            fmt::format("ttrace annotate {} --reference {} -o annotations.yaml", shell_word(options.candidate),
                        shell_word(options.reference))};
  }
  using Side = std::pair<const AlignedTrace*, const char*>;
  for (const auto& [aligned, option] :
       {Side{&loaded.candidate, "-a"}, Side{&loaded.reference, "--reference-annotations"}}) {
    const std::string& axes = aligned->alignment.open_order;
    if (!loaded.translation || axes.empty()) continue;
    return {fmt::format(
                "which micro-batches the ranks along {0} run is not known, and {1} of {2} tensors differ where they "
                "interleave: of the integer inputs none that tells has a counterpart; write microbatches: {{order: "
                "blocked}} or {{order: interleaved}} in the annotations ({3}), or a line for the model's inputs in {4}",
                axes, wrong, tensors, option, options.correspondence),
            ""};
  }
  const bool only_values = std::all_of(report.findings.begin(), report.findings.end(), [](const Finding& finding) {
    return !is_wrong(finding) || finding.reason == Reason::kExceedsTolerance;
  });
  if (loaded.tolerance || !only_values) return {};
  const std::string estimate =
      fmt::format("ttrace estimate-tolerance -o tolerance.yaml --reference {}", shell_word(options.reference));
  std::string what = fmt::format(
      "no tolerances (-t), and {} of {} tensors are not equal bit for bit; `ttrace estimate-tolerance` measures what "
      "rounding does to each, a file for -t",
      wrong, tensors);
  const std::vector<std::string>& command = reference.provenance.command;
  if (!command.empty()) return {std::move(what), fmt::format("{} -- {}", estimate, shell_line(command))};
  // A block of a program, as `ttrace.record` leaves it, or values from elsewhere.
  what +=
      ", of further recordings of the reference, which no command makes: one more, and three perturbed ones "
      "(`ttrace.record(..., perturb=1)` to 3)";
  return {std::move(what), estimate + " --rerun again --perturbed perturbed-1 perturbed-2 perturbed-3"};
}

// Returns the command that looks closer at what differs: a second run, where the trace says how to make it and it would
// tell something, or else the page. Empty where nothing differs.
std::string closer_look(const CheckOptions& options, const Trace& candidate, const Report& report) {
  if (report.verdict() != RunVerdict::kDifferent) return "";
  const bool has_roots = !report.roots.empty() && !has_rewritten_modules(candidate);
  const bool can_localize = unknown_to_localize(options).empty();
  if (!has_roots || !can_localize || candidate.provenance.command.empty() || !plan_second_run(report).modules) {
    return command_of(options) + " --html report.html";
  }
  return localize_command_of(options, {});
}

}  // namespace

Checked check(const CheckOptions& options) {
  // load, align
  Team alone;
  Team& team = options.team == nullptr ? alone : *options.team;
  LoadedRuns loaded = load_and_align(options, team);
  if (loaded.tolerance) require_sound(*loaded.tolerance, loaded.reference.alignment);
  const std::vector<std::string> notes = collect_notes(loaded, options.annotations.settings);
  Alignment &reference = loaded.compared_reference(), &candidate = loaded.compared_candidate();
  if (options.tolerance == kDefaultTolerance) {
    loaded.tolerance = default_tolerances(reference, loaded.reference.trace->compute_dtype);
  }
  if (!options.only.empty()) keep_only(reference, candidate, options.only);
  if (!options.iterations.empty()) keep_iterations(reference, candidate, options.iterations);

  // merge, compare: in one pass over memory, because merging copies nothing.
  const Matching matching = match(reference, candidate, narrower_kinds(loaded));
  const std::vector<Difference> differences = measure(matching, options, team);
  if (loaded.tolerance && !loaded.tolerance->unmeasured.empty()) {
    widen_by_values(matching.pairs, std::span(differences).first(matching.pairs.size()), *loaded.tolerance);
  }

  // judge
  const ToleranceFile* tolerance = loaded.tolerance ? &*loaded.tolerance : nullptr;
  const Replay replay = replay_with(team, options.threads);
  const JudgedSteps steps =
      judge_steps(loaded.reference, loaded.candidate, matching, differences, tolerance, options.threads,
                  loaded.translation ? &loaded.translation->parameters : nullptr, &replay);
  Report report = judge_all(reference, matching, differences, tolerance, {options.waivers, options.accept_overrides},
                            steps.verdicts);
  report.steps = steps.coverage;
  report.notes.insert(report.notes.end(), steps.notes.begin(), steps.notes.end());
  report.reference = options.reference;
  report.candidate = options.candidate;
  report.strict = options.strict;
  report.command_for_all = command_of(options) + " --all";
  Lacking lacking = what_it_lacks(options, loaded, report);
  if (!has_broken_ranks(report)) {
    report.instead = std::move(lacking.what);
    report.next_command = std::move(lacking.command);
  } else if (!lacking.what.empty()) {
    report.notes.push_back(std::move(lacking.what));
  }
  report.notes.insert(report.notes.end(), notes.begin(), notes.end());
  const Trace& trace = *loaded.candidate.trace;
  note_swapped(*loaded.reference.trace, trace, report);
  if (!loaded.annotations.guesses.empty() && !report.same() && !loaded.translation) {
    for (std::string& note : notes_of_guesses(options.annotations, reference, trace, tolerance, report)) {
      report.notes.push_back(std::move(note));
    }
  }
  PageFacts page;
  page.follows_from = add_root_causes(
      report, {reference, candidate, trace.mesh, loaded.annotations.tied, has_rewritten_modules(trace)});
  add_sources(report, candidate, trace);
  if (report.next_command.empty()) report.next_command = closer_look(options, trace, report);
  page.command = command_of(options);
  if (loaded.translation) add_translation(*loaded.translation, report);
  page.reference = facts_of(*loaded.reference.trace, options.reference);
  page.candidate = facts_of(trace, options.candidate);
  if (tolerance != nullptr) page.tolerance = facts_of(*tolerance);
  if (options.pictures) page.pictures = depict(report, reference, candidate);
  require_unchanged_files();
  return {std::move(report), make_record(options, *loaded.reference.trace, trace), std::move(page)};
}

}  // namespace ttrace
