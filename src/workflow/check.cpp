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
#include <numeric>
#include <set>
#include <span>
#include <tuple>

#include "advice/advice.h"
#include "align/aligned_trace.h"
#include "base/describe.h"
#include "base/error.h"
#include "base/outcome.h"
#include "correspond/by_sequence.h"
#include "correspond/join_microbatches.h"
#include "diagnose/configurations.h"
#include "diagnose/log_probs.h"
#include "diagnose/loss_scales.h"
#include "diagnose/root_causes.h"
#include "diagnose/sources.h"
#include "distribute/comparison.h"
#include "distribute/index.h"
#include "distribute/steps.h"
#include "files/tolerance_file.h"
#include "history/history.h"
#include "host/progress.h"
#include "host/shell_words.h"
#include "identify/arrangement.h"
#include "identify/local_experts.h"
#include "identify/model_numbers.h"
#include "identify/no_module.h"
#include "identify/parts_of_model.h"
#include "identify/program.h"
#include "identify/ties.h"
#include "identify/wrappers.h"
#include "judge/declared_sums.h"
#include "judge/judge.h"
#include "load/further.h"
#include "load/mapped_file.h"
#include "load/trace_reader.h"
#include "merge/rewritten.h"
#include "page/depict.h"
#include "step/account.h"
#include "step/judge_steps.h"
#include "tolerance/default_tolerance.h"
#include "workflow/annotations.h"
#include "workflow/guesses.h"
#include "workflow/keyed_seal.h"
#include "workflow/option_values.h"
#include "workflow/page_facts.h"
#include "workflow/reference_order.h"
#include "workflow/report_files.h"
#include "workflow/resumed.h"
#include "workflow/rounding.h"
#include "workflow/saved.h"
#include "workflow/surroundings.h"
#include "workflow/translated.h"

namespace ttrace {
namespace {

// Adds what was left out, and the alignment's notes about the annotations, except those of a trace of one rank, which needs no annotations.
void add_notes(const std::string& side, const AlignedTrace& aligned, std::vector<std::string>& notes) {
  for (const RankTrace& rank : aligned.trace->ranks) {
    if (rank.rehearsed == 0) continue;
    notes.push_back(fmt::format(
        "{}: rank {} called models before they trained, and no backward followed: {} tensors of that are left out",
        side, rank.rank, rank.rehearsed));
    break;  // the others do the same
  }
  if (!aligned.trace->left_out.empty()) {
    notes.push_back(
        fmt::format("{}: iteration {} is not compared: it was recorded beyond what was asked for, and not by all "
                    "ranks of both sides",
                    side, fmt::join(aligned.trace->left_out, ", ")));
  }
  for (const std::string& what : left_out_of(*aligned.trace)) {
    notes.push_back(fmt::format("{}: left out, and not compared: {}", side, printable(what)));
  }
  if (aligned.trace->world_size == 1) return;
  for (const std::string& note : aligned.alignment.notes) notes.push_back(fmt::format("{}: {}", side, note));
}

void note_overrides(const ToleranceFile& tolerance, const Alignment& reference, std::vector<std::string>& notes) {
  std::set<ToleranceKey> tensors;
  for (const auto& [id, tensor] : reference.tensors) tensors.emplace(id.kind, id.name);
  for (std::string& note : unused_overrides(tolerance, tensors)) notes.push_back(std::move(note));
}

CheckRecord make_record(const CheckOptions& options, const Trace& reference, const Trace& candidate) {
  CheckRecord check;
  check.reference_run = reference.run_id;
  check.candidate_run = candidate.run_id;
  if (!options.candidate_iterations.empty()) {
    check.candidate = fmt::format("iteration {}", fmt::join(options.candidate_iterations, ","));
    check.candidate_run += ", " + check.candidate;
  } else if (!options.iterations.empty()) {  // a check of others is another one
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
  std::vector<std::string> notes;
  std::string partial;  // which sequences are not compared, of those that --sequences maps; else empty
  std::optional<ToleranceFile>
      rounding;                     // of a check by bits: what rounding may do to the iteration that differs first
  ToldAxes told_axes;               // of the candidate, where nobody says them
  bool is_loss_scale_said = false;  // by annotations
  bool has_told_experts = false;    // the candidate's experts are numbered as their bytes say
  std::vector<std::string> seen_through;  // notes about the candidate's wrappers, whose names it does not have any more

  bool is_rewritten() const { return has_rewritten_modules(*candidate.trace); }
  const ToleranceFile* tolerances() const { return tolerance ? &*tolerance : nullptr; }
  Alignment& compared_reference() { return translation ? translation->reference : reference.alignment; }
  Alignment& compared_candidate() { return translation ? translation->candidate : candidate.alignment; }
};

// Everything equals itself.
void require_two_runs(const Trace& reference, const Trace& candidate) {
  std::error_code ignored;
  const bool is_one_file = std::filesystem::equivalent(reference.directory, candidate.directory, ignored);
  if (reference.run_id != candidate.run_id && !is_one_file) return;
  throw InputError(
      fmt::format("{}: holds the same run as the reference {} ({}), and every run equals itself; expected another run, "
                  "or --allow-same-run",
                  candidate.directory.string(), reference.directory.string(), reference.run_id));
}

// Of two saved things that hold one tensor each, the candidate's is taken for the reference's, whatever their names.
void name_alike(const Trace& reference, Trace& candidate, std::vector<std::string>& notes) {
  const auto has_one = [](const Trace& trace) {
    return is_imported(trace) && trace.ranks.size() == 1 && trace.ranks[0].entries.size() == 1;
  };
  if (!has_one(reference) || !has_one(candidate)) return;
  const TensorId &trusted = reference.ranks[0].entries[0].id, of_candidate = candidate.ranks[0].entries[0].id;
  if (trusted == of_candidate) return;
  notes.push_back(
      fmt::format("one tensor on either side, and so the candidate's {} is compared with the reference's {}",
                  to_string(of_candidate), to_string(trusted)));
  candidate.ranks[0].entries[0].id = trusted;
}

// Leaves out the iterations that one side recorded beyond those that it was asked for, and the other did not; and what
// light ones do not have. `with_light`: whether these are compared at all.
void keep_common_iterations(Trace& reference, Trace& candidate, bool with_light, std::vector<std::string>& notes) {
  std::vector<RankTrace*> ranks;
  for (Trace* trace : {&reference, &candidate}) {
    for (RankTrace& rank : trace->ranks) ranks.push_back(&rank);
  }
  const std::set<std::int32_t> uncommon = leave_out_uncommon(ranks);
  candidate.left_out.insert(uncommon.begin(), uncommon.end());
  const std::set<std::int32_t> light = light_iterations(ranks);
  if (light.empty()) return;
  if (!with_light) leave_out(light, ranks);
  const std::string_view what =
      with_light
          ? "its gradients, updates, scalars, and parameters and buffers after the step are compared, large ones as "
            "sketches"
          : "not compared, as default tolerances are of one iteration: ttrace estimate-tolerance measures it";
  notes.push_back(fmt::format("light iteration {}: {}", fmt::join(light, ", "), what));
}

// Where the programs differ, annotations are of the candidate's names.
Annotations annotations_of_reference(const CheckOptions& options, const Annotations& of_candidate) {
  if (!options.reference_annotations.file.empty()) return load_annotations(options.reference_annotations);
  return options.correspondence.empty() ? of_candidate : Annotations{};
}

// A factor of one word, or one over it: `dp`, `1/8`.
Factor factor_of(const std::string& text) {
  constexpr std::string_view kOneOver = "1/";
  return text.starts_with(kOneOver) ? Factor{{}, {text.substr(kOneOver.size())}, {}} : Factor{{text}, {}, {}};
}

// Throws InputError where an optimizer of the reference calls the model again between the updates of one step: what those
// make of rounding has no closed form.
void require_closed_form(const Trace& reference) {
  for (const RankTrace& rank : reference.ranks) {
    const bool is_called_again = std::any_of(rank.entries.begin(), rank.entries.end(),
                                             [](const Entry& entry) { return entry.id.microbatch > 0; });
    const auto updates_in_between = [](const OptimizerStep& step) { return step.optimizer.ends_with(".LBFGS"); };
    const bool updates = std::any_of(rank.optimizer_steps.begin(), rank.optimizer_steps.end(), updates_in_between);
    if (!is_called_again || !updates) continue;
    throw InputError(
        "-t default: LBFGS calls the model again between its updates, and what these make of rounding has no closed "
        "form; expected a file of measured tolerances (`ttrace estimate-tolerance`)");
  }
}

// Ties the parameters that the bytes say are one, where neither the annotations nor the program say any.
void tie_by_bytes(const Trace& reference, const Trace& candidate, LoadedRuns& loaded) {
  const ProgramWords* program = candidate.program.get();
  const bool is_said = program != nullptr && !program->words.tied.empty();
  if (is_said || !loaded.annotations.tied.empty()) return;
  loaded.annotations.tied = ties_of_bytes(reference, candidate);
  for (const TiedRule& rule : loaded.annotations.tied) {
    loaded.notes.push_back(
        fmt::format("candidate: {0} is taken for a copy of {1}: the reference has one parameter under both names, with "
                    "one value and one gradient (`parallelism: {{tied: {{{0}: {1}}}}}`)",
                    printable(rule.name), printable(rule.of)));
  }
}

// Arranges the ranks as the bytes say, where nobody does. Ranks that divide sequences run slices as those that divide
// samples do, where nobody says how context parallelism places tensors.
void take_told_axes(const Trace& reference, const Trace& candidate, LoadedRuns& loaded) {
  Annotations& annotations = loaded.annotations;
  const bool is_said = !annotations.rules.empty() || !annotations.microbatches.axes.empty();
  if (annotations.axes && is_said) return;
  ToldAxes told = axes_told_by(reference, candidate);
  if (told.axes.empty() || (annotations.axes && annotations.axes->text != told.axes)) return;
  if (told.are_sequences && !is_said) annotations.microbatches.axes = {told.axes.substr(0, told.axes.find('='))};
  if (annotations.axes) return;
  annotations.axes = {told.axes, "the bytes of its parameters and inputs"};
  loaded.told_axes = std::move(told);
}

// Numbers experts as the bytes say that ranks number from 0, where neither the annotations nor the program say any.
// Throws InputError where only their names and shapes say so: ranks would be compared by the numbers of others'.
void number_experts(const Alignment& reference, Trace& candidate, LoadedRuns& loaded) {
  const bool is_said = loaded.annotations.experts || with_program_words(loaded.annotations, candidate).experts;
  const bool is_arranged = loaded.annotations.axes || !candidate.mesh.axes.empty();
  if (is_said || !is_arranged) return;
  settle_axes(candidate, loaded.annotations, AxesOf::kThisTrace);
  const std::optional<LocalExperts> local = find_local_experts(reference, candidate);
  if (!local) return;
  const std::string experts = fmt::format("{} of the reference's {} {}", local->own, local->of_model, local->layers);
  if (!local->told) {
    throw InputError(
        fmt::format("{}: each rank along {} numbers {} from 0, and their bytes do not tell which these are; expected "
                    "`parallelism: {{{}}}` in the annotations where each coordinate has the next of them, or names of "
                    "the whole model",
                    candidate.directory.string(), local->axis, printable(experts), printable(local->line())));
  }
  loaded.annotations.experts = ExpertRule{local->axis, local->layers, {}};
  loaded.has_told_experts = true;
  loaded.notes.push_back(fmt::format(
      "candidate: each rank along {} numbers {} from 0; taken as `parallelism: {{{}}}`, for they begin with "
      "these experts' bytes",
      local->axis, printable(experts), printable(local->line())));
}

// `loss_scale`: what the bytes say; nothing: what the annotations or the program say.
LoadedRuns read_and_align(const CheckOptions& options, const std::optional<PossibleLossScale>& loss_scale, Team& team) {
  const bool is_default = options.tolerance == kDefaultTolerance;
  std::future<ToleranceFile> tolerance;  // its YAML is read while the traces' indexes are
  if (!options.tolerance.empty() && !is_default) {
    // Deferred where no thread can be made. The path is copied, for the attempt would take one that may be moved.
    const std::filesystem::path file = options.tolerance;
    tolerance = std::async(std::launch::async | std::launch::deferred, read_sealed_tolerances, file);
  }
  ReadPair read = read_pair(options.reference, options.candidate, {options.python, options.threads}, team);
  Trace reference = std::move(read.reference.trace), candidate = std::move(read.candidate.trace);
  require_same_values(reference, candidate);
  LoadedRuns loaded;
  AnnotationSource source = options.annotations;
  std::optional<Correspondence> correspondence;
  if (!options.correspondence.empty()) {
    correspondence =
        load_correspondence(options.correspondence, source.settings, {options.reference, options.candidate});
  }
  loaded.annotations = load_annotations(source, candidate);
  loaded.is_loss_scale_said = loaded.annotations.loss_scale.has_value();
  if (loss_scale) {
    const Factor factor = factor_of(loss_scale->factor);
    if (loss_scale->microbatches.empty()) {
      loaded.annotations.loss_scale = factor;
    } else {
      loaded.annotations.scale_of_some = {factor, loss_scale->microbatches};
    }
  }
  if (options.bits && !options.tolerance.empty()) {
    throw InputError("--bits: tolerances (-t) allow other bits; expected one of the two");
  }
  if (is_default && options.strict) {
    throw InputError(
        "--strict: the default tolerances (-t default) were not measured; expected a file of measured ones");
  }
  const bool with_light = !is_default;  // several iterations have no closed form
  if (tolerance.valid()) {
    loaded.tolerance = tolerance.get();
    std::optional<Trace> again;
    if (!options.tolerance_reference.empty()) again = read_trace(options.tolerance_reference, options.threads);
    const Trace& measured = again ? *again : reference;
    require_fits(*loaded.tolerance, measured, digest_of(measured), candidate);
    if (!options.accept_overrides) require_modest_overrides(*loaded.tolerance);
  }
  if (!options.allow_same_run) require_two_runs(reference, candidate);
  if (options.correspondence.empty()) {
    name_alike(reference, candidate, loaded.notes);
    for (std::string& note : number_models_as_reference(reference, candidate)) loaded.notes.push_back(std::move(note));
    for (std::string& note : name_parts_as_in_whole(reference, candidate)) loaded.notes.push_back(std::move(note));
    loaded.seen_through = see_through_wrappers(reference, candidate);
    number_as_reference(reference, candidate);
    tie_by_bytes(reference, candidate, loaded);
  }
  if (!options.reference_iterations.empty()) {
    renumber_iterations(candidate, options.candidate_iterations, options.reference_iterations);
  }
  keep_common_iterations(reference, candidate, with_light, loaded.notes);
  if (is_default) require_closed_form(reference);
  const Annotations of_reference = annotations_of_reference(options, loaded.annotations);
  if (options.correspondence.empty() && candidate.mesh.axes.empty()) take_told_axes(reference, candidate, loaded);
  loaded.reference = align_whole(std::move(reference), of_reference, {}, options.threads);
  settle_order_of_reference(loaded.reference, of_reference, options.candidate, loaded.annotations,
                            options.correspondence);
  // The candidate is measured against the reference's number of layers, not against its own.
  if (!correspondence) {
    number_experts(loaded.reference.alignment, candidate, loaded);
    loaded.candidate =
        align_trace(std::move(candidate), loaded.annotations, layout_of(loaded.reference.alignment), options.threads);
    for (std::string& note : join_microbatches(loaded.reference.alignment, loaded.candidate.alignment)) {
      loaded.notes.push_back(std::move(note));
    }
    return loaded;
  }
  TranslatedRun run =
      align_by_correspondence(*correspondence, loaded.reference, std::move(candidate), loaded.annotations);
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
  if (const ToldAxes& told = loaded.told_axes; !told.axes.empty()) {
    notes.push_back(fmt::format("candidate: nothing says how its ranks are arranged; taken as --axes {}: {}", told.axes,
                                told.because));
  }
  for (std::string& note : notes_of_declared_sums(loaded.annotations, candidate)) notes.push_back(std::move(note));
  if (loaded.tolerance && !loaded.tolerance->is_sealed) {
    notes.push_back(
        fmt::format("{}: has no seal: nothing says that what it allows was measured (`ttrace "
                    "estimate-tolerance` seals what it writes)",
                    loaded.tolerance->path));
  }
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

std::string note_of(const PossibleLossScale& loss_scale) {
  const std::string& factor = loss_scale.factor;
  const std::string of_reference = factor == "1" ? "the reference's" : fmt::format("{} times the reference's", factor);
  if (loss_scale.microbatches.empty()) {
    return fmt::format(
        "candidate: its loss and gradients are {} until ranks reduce them: taken as `parallelism: {{loss_scale: {}}}`",
        of_reference, factor);
  }
  const auto& [iteration, microbatch] = *loss_scale.microbatches.begin();
  const std::size_t count = loss_scale.microbatches.size();
  return fmt::format(
      "candidate: in {} micro-batch{}, the first iteration {}, micro-batch {}, its loss and gradients are {} "
      "until ranks reduce them, unlike in the others",
      count, count == 1 ? "" : "es", iteration, microbatch, of_reference);
}

// Returns the runs as they are compared, or throws InputError where one cannot be.
LoadedRuns load_and_align(const CheckOptions& options, const std::optional<PossibleLossScale>& loss_scale, Team& team) {
  LoadedRuns loaded = read_and_align(options, loss_scale, team);
  if (loaded.tolerance) require_sound(*loaded.tolerance, loaded.reference.alignment);
  for (std::string& note : collect_notes(loaded, options.annotations.settings)) loaded.notes.push_back(std::move(note));
  Alignment &reference = loaded.compared_reference(), &candidate = loaded.compared_candidate();
  std::optional<std::pair<TokenStreams, TokenStreams>> streams;  // read before tensors are left out
  if (!options.sequences.empty()) {
    streams.emplace();
    streams->first = token_streams_of(loaded.reference.alignment, options.sequences, "reference");
    streams->second = token_streams_of(loaded.candidate.alignment, options.sequences, "candidate");
  }
  if (!options.rounded_to.empty()) {
    loaded.notes.push_back(round_reference(reference, candidate, options.rounded_to, options.threads));
  }
  for (const auto* iterations : {&options.iterations, &options.reference_iterations}) {
    if (!iterations->empty()) keep_iterations(reference, candidate, *iterations);
  }
  if (options.tolerance == kDefaultTolerance) {
    loaded.tolerance = default_tolerances(reference, loaded.reference.trace->compute_dtype);
  }
  if (loss_scale) loaded.notes.push_back(note_of(*loss_scale));
  if (!options.only.empty()) keep_only(reference, candidate, options.only);
  if (streams) {
    SequenceMapping mapping = map_by_sequence(streams->first, streams->second, reference, candidate);
    loaded.notes.insert(loaded.notes.begin(), mapping.notes.begin(), mapping.notes.end());
    loaded.partial = std::move(mapping.partial);
  }
  return loaded;
}

struct Measured {
  Matching matching;
  std::vector<Difference> differences;  // of its pairs, and then of its recomputed ones
  std::vector<BitDifference> bits;      // the same; none unless these were asked for
};

// Merges and compares in one pass over memory, because merging copies nothing.
Measured measure(LoadedRuns& loaded, const CheckOptions& options, Team& team) {
  Measured measured{match(loaded.compared_reference(), loaded.compared_candidate(), narrower_kinds(loaded)), {}, {}};
  const std::vector<TensorPair>& matched = measured.matching.pairs;
  std::vector<TensorPair> pairs = matched;
  pairs.insert(pairs.end(), measured.matching.recomputed.begin(), measured.matching.recomputed.end());
  ProgressLine progress("comparing");
  measured.differences = compare(pairs, {options.threads, progress.callback(), options.checksums}, team);
  if (options.bits) measured.bits = compare_bits(pairs, measured.differences, options.threads);
  const std::span<const Difference> of_matched = std::span(measured.differences).first(matched.size());
  if (loaded.tolerance && !loaded.tolerance->unmeasured.empty()) {
    widen_by_values(matched, of_matched, *loaded.tolerance);
    widen_by_own_sums(loaded.compared_reference(), matched, of_matched, *loaded.tolerance);
  } else if (loaded.tolerance) {
    bound_roundings_of_zero(matched, of_matched, *loaded.tolerance);
  }
  return measured;
}

// Returns `the reference's torch.optim.adam.Adam of 6 parameters, ...`; nothing where all optimizers stepped.
std::optional<std::string> describe_unstepped(const Trace& reference, const Trace& candidate) {
  std::vector<std::string> all;
  for (const auto& [side, trace] : {std::pair("reference", &reference), std::pair("candidate", &candidate)}) {
    std::set<UnsteppedOptimizer> unstepped;  // ranks say the same, unless each has a part of the parameters
    for (const RankTrace& rank : trace->ranks) unstepped.insert(rank.unstepped.begin(), rank.unstepped.end());
    for (const UnsteppedOptimizer& each : unstepped) {
      all.push_back(fmt::format("the {}'s {} of {} parameters", side, each.optimizer, each.parameters));
    }
  }
  return all.empty() ? std::nullopt : std::optional(comma_list(all));
}

Report judge(LoadedRuns& loaded, const Measured& measured, const CheckOptions& options, Team& team) {
  const auto& [matching, differences, bits] = measured;
  const ToleranceFile* tolerance = loaded.tolerances();
  const Replay replay = replay_with(team, options.threads);
  const JudgedSteps steps =
      judge_steps(loaded.reference, loaded.candidate, {matching, differences, tolerance, options.threads},
                  loaded.translation ? &loaded.translation->parameters : nullptr, &replay);
  Report report = judge_all(loaded.compared_reference(), matching, differences, tolerance,
                            {options.waivers, options.accept_overrides}, steps.verdicts, bits);
  report.runs.reference = options.reference;
  report.runs.candidate = options.candidate;
  report.runs.failed = loaded.candidate.trace->failure;
  report.runs.cut_otherwise = !loaded.compared_candidate().joined.empty();
  if (!loaded.partial.empty()) {
    report.runs.partial = report.runs.partial ? *report.runs.partial + "; " + loaded.partial : loaded.partial;
  }
  report.totals.steps = steps.coverage;
  report.proof.unstepped = describe_unstepped(*loaded.reference.trace, *loaded.candidate.trace);
  if (report.totals.steps) add_account(loaded.candidate, *report.totals.steps);
  report.notes.insert(report.notes.end(), steps.notes.begin(), steps.notes.end());
  report.strict = options.strict;
  return report;
}

// Returns what rounding may do to the tensors of the iteration that differs first, by the closed form; nothing where no
// tensor differs.
std::optional<ToleranceFile> rounding_of(LoadedRuns& loaded, const Measured& measured, const Report& report) {
  const Finding* first = report.first_wrong();
  if (first == nullptr || !first->difference) return std::nullopt;
  Alignment iteration = loaded.compared_reference();
  std::erase_if(iteration.tensors, [&](const auto& item) { return item.first.iteration != first->id.iteration; });
  if (iteration.tensors.empty()) return std::nullopt;
  ToleranceFile closed_form = default_tolerances(iteration, loaded.reference.trace->compute_dtype);
  const std::vector<TensorPair>& pairs = measured.matching.pairs;
  widen_by_values(pairs, std::span(measured.differences).first(pairs.size()), closed_form);
  return closed_form;
}

Evidence evidence_of(LoadedRuns& loaded, const CheckOptions& options) {
  Evidence evidence{loaded.compared_reference(), loaded.compared_candidate(), loaded.candidate.trace->mesh,
                    loaded.annotations.tied, loaded.is_rewritten()};
  evidence.reference_trace = &*loaded.reference.trace;
  evidence.candidate_trace = &*loaded.candidate.trace;
  evidence.by_bits = options.bits;
  evidence.rounding = loaded.rounding ? &*loaded.rounding : nullptr;
  evidence.tolerance = loaded.tolerances();
  return evidence;
}

// Returns for each finding the one that it follows from.
std::vector<std::optional<std::size_t>> explain(LoadedRuns& loaded, const CheckOptions& options, Report& report) {
  const Trace& trace = *loaded.candidate.trace;
  Alignment& candidate = loaded.compared_candidate();
  const ConfiguredOtherwise configured =
      compare_configurations(loaded.compared_reference(), *loaded.reference.trace, candidate, trace);
  report.explanation.configured = group_by_attribute(configured);
  report.runs.surroundings = compare_surroundings(*loaded.reference.trace, trace);
  Evidence evidence = evidence_of(loaded, options);
  evidence.configured = &configured;
  auto follows_from = add_root_causes(report, evidence);
  add_sources(report, candidate, trace, *loaded.reference.trace);
  return follows_from;
}

// Finds what differs by more than the closed form allows; nothing where that has none for the reference.
std::optional<BeyondDefault> find_beyond_default(LoadedRuns& loaded, const Measured& measured,
                                                 const CheckOptions& options, const Report& report) {
  const Alignment& reference = loaded.compared_reference();
  const auto& tensors = reference.tensors;
  if (loaded.tolerance || options.bits || report.verdict() != RunVerdict::kDifferent || tensors.empty()) {
    return std::nullopt;
  }
  if (tensors.begin()->first.iteration != tensors.rbegin()->first.iteration) return std::nullopt;
  ToleranceFile closed_form = default_tolerances(reference, loaded.reference.trace->compute_dtype);
  const std::vector<TensorPair>& pairs = measured.matching.pairs;
  widen_by_values(pairs, std::span(measured.differences).first(pairs.size()), closed_form);
  BeyondDefault beyond;
  for (std::size_t i = 0; i < report.findings.size(); ++i) {
    const Finding& finding = report.findings[i];
    const std::optional<double> allowed = allowance_for(closed_form, finding.id).allowed;
    if (!is_wrong(finding) || !finding.difference || !allowed || !(finding.difference->rel_err() > *allowed)) continue;
    if (beyond.tensors++ == 0) std::tie(beyond.first, beyond.allowed) = std::tuple(i, *allowed);
  }
  return beyond;
}

// Returns the command of the check that allows for the rounding that was found; nothing where none was, or it is allowed.
std::optional<std::string> check_of_rounding(LoadedRuns& loaded, const CheckOptions& options, const Report& report) {
  if (!options.rounded_to.empty()) return std::nullopt;
  const auto dtype = told_rounding(report, loaded.compared_reference(), loaded.compared_candidate());
  if (!dtype) return std::nullopt;
  CheckOptions rounded = options;
  rounded.rounded_to = *dtype;
  return command_of(rounded);
}

// Says what to do next, and what people should know of the runs.
void advise(LoadedRuns& loaded, const Measured& measured, const CheckOptions& options, Report& report) {
  const Trace& candidate = *loaded.candidate.trace;
  const bool can_localize =
      unknown_to_localize(options).empty() && loaded.seen_through.empty() && !loaded.has_told_experts;
  add_advice({.reference = loaded.reference,
              .candidate = loaded.candidate,
              .is_mapping_known = is_mapping_known(options, candidate),
              .has_tolerances = loaded.tolerance.has_value() || options.bits,
              .correspondence = options.correspondence,
              .axes = options.annotations.axes,
              .check = command_of(options),
              .localize = can_localize ? std::optional(localize_command_of(options, {})) : std::nullopt,
              .beyond = find_beyond_default(loaded, measured, options, report),
              .rounded_check = check_of_rounding(loaded, options, report),
              .is_saved = is_imported(*loaded.reference.trace) || is_imported(candidate)},
             report);
  for (std::string& note : notes_of_log_probs(measured.matching.pairs)) report.notes.push_back(std::move(note));
  report.notes.insert(report.notes.end(), loaded.seen_through.begin(), loaded.seen_through.end());
  report.notes.insert(report.notes.end(), loaded.notes.begin(), loaded.notes.end());
  if (report.runs.failed && report.verdict() == RunVerdict::kDifferent) report.notes.push_back(*report.runs.failed);
  note_swapped(*loaded.reference.trace, candidate, report);
  if (loaded.translation) {
    add_translation(*loaded.translation, report);
  } else if (!loaded.annotations.guesses.empty() && !report.same()) {
    for (std::string& note :
         notes_of_guesses(options.annotations, loaded.reference.alignment, candidate, loaded.tolerances(), report)) {
      report.notes.push_back(std::move(note));
    }
  }
}

// Returns what a page shows beside the report.
PageFacts page_facts(LoadedRuns& loaded, const CheckOptions& options, const Report& report) {
  PageFacts page;
  page.command = command_of(options);
  page.reference = facts_of(*loaded.reference.trace, options.reference);
  page.candidate = facts_of(*loaded.candidate.trace, options.candidate);
  if (loaded.tolerance) page.tolerance = facts_of(*loaded.tolerance);
  if (options.pictures) page.pictures = depict(report, loaded.compared_reference(), loaded.compared_candidate());
  return page;
}

// True where the presumed loss scale leaves less in question, or explains some of what is wrong.
bool holds_with_scale(const Report& scaled, const Report& without, bool may_explain_all) {
  const auto asked = [](const Report& report) {
    const std::vector<Question>& questions = report.explanation.questions;
    const auto add = [](std::int64_t sum, const Question& question) { return sum + question.tensors; };
    return std::pair(questions.size(), std::accumulate(questions.begin(), questions.end(), std::int64_t{0}, add));
  };
  if (without.verdict() != RunVerdict::kDifferent) {
    return scaled.same() || (scaled.verdict() == RunVerdict::kCouldNotLook && asked(scaled) < asked(without));
  }
  if (scaled.verdict() != RunVerdict::kDifferent) return may_explain_all;
  // Later iterations begin with what a mistake has made of the parameters.
  const Finding* first = without.first_wrong();
  const auto wrong = [&](const Report& report) {
    return std::ranges::count_if(report.findings, [&](const Finding& finding) {
      return is_wrong(finding) && (first == nullptr || finding.id.iteration <= first->id.iteration);
    });
  };
  if (wrong(scaled) != wrong(without)) return wrong(scaled) < wrong(without);
  // What is wrong has nothing to do with it.
  const Finding* still = scaled.first_wrong();
  return first != nullptr && still != nullptr && still->id == first->id && asked(scaled) < asked(without);
}

// `possible`, where it is not null, becomes the loss scale that the check may lack.
Checked check_with(const CheckOptions& given, const std::optional<PossibleLossScale>& loss_scale, Team& team,
                   std::optional<PossibleLossScale>* possible) {
  LoadedRuns loaded = load_and_align(given, loss_scale, team);
  CheckOptions options = given;
  // For the commands that are proposed.
  if (!loaded.told_axes.axes.empty()) options.annotations.axes = loaded.told_axes.axes;
  // Alignments are not changed any more: which tensors are compared, and where each of their elements lies.
  const Measured measured = measure(loaded, options, team);
  // Differences and tolerances are not changed any more.
  Report report = judge(loaded, measured, options, team);
  // The verdicts of tensors, and their order, are not changed any more.
  if (options.bits) loaded.rounding = rounding_of(loaded, measured, report);
  auto follows_from = explain(loaded, options, report);
  // The roots and their sentences are not changed any more.
  if (possible != nullptr && !loaded.is_loss_scale_said) {
    *possible = possible_loss_scale(report, evidence_of(loaded, options));
  }
  advise(loaded, measured, options, report);
  // The report is not changed any more.
  PageFacts page = page_facts(loaded, options, report);
  page.follows_from = std::move(follows_from);
  require_unchanged_files();
  return {std::move(report), make_record(options, *loaded.reference.trace, *loaded.candidate.trace), std::move(page)};
}

}  // namespace

Checked check(const CheckOptions& options) {
  Team alone;
  Team& team = options.team == nullptr ? alone : *options.team;
  std::optional<PossibleLossScale> possible;
  Checked checked = check_with(options, std::nullopt, team, &possible);
  if (!possible) return checked;
  Checked scaled = check_with(options, possible, team, nullptr);
  const bool holds = holds_with_scale(scaled.report, checked.report, possible->may_explain_all);
  if (!holds) return checked;
  if (possible->microbatches.empty()) scaled.report.explanation.told_loss_scale = factor_of(possible->factor);
  return scaled;
}

}  // namespace ttrace
