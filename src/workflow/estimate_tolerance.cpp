#include "workflow/estimate_tolerance.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <utility>

#include "align/aligned_trace.h"
#include "base/error.h"
#include "distribute/comparison.h"
#include "distribute/index.h"
#include "files/tolerance_file.h"
#include "host/launch.h"
#include "host/progress.h"
#include "host/write_file.h"
#include "judge/match.h"
#include "load/trace_reader.h"
#include "step/options.h"
#include "step/regression.h"
#include "tolerance/estimate.h"
#include "tolerance/family.h"
#include "workflow/annotations.h"
#include "workflow/collect.h"
#include "workflow/keyed_seal.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFurtherRuns = 4;

Dtype compute_dtype_of(const Trace& reference) {
  const auto dtype = dtype_from_name(reference.compute_dtype);
  if (dtype && is_floating(*dtype)) return *dtype;
  throw InputError(
      fmt::format("{}: its compute dtype is '{}'; expected a floating-point one, such as bfloat16: the "
                  "least that a tensor may differ by follows from it",
                  reference.directory.string(), reference.compute_dtype));
}

// Rounding may send a token to another expert, which then has more rows than in the reference.
std::string_view hint_at_routing(const Finding& finding, const Annotations& annotations) {
  if (finding.reason != Reason::kShapeMismatch || is_parameter_kind(finding.id.kind)) return "";
  const bool knows_rows = std::any_of(annotations.rules.begin(), annotations.rules.end(),
                                      [](const AnnotationRule& rule) { return rule.rows.has_value(); });
  return knows_rows ? ""
                    : "; where a router deals out tokens to experts, give the annotations that say of which tensors "
                      "they are the rows: -a megatron_moe, for example";
}

// Refuses a run that lacks a tensor or has it in another shape. It is not a run of the same program: an estimate from
// it would leave those tensors out, and hide bugs in them.
Matching match_run(const AlignedTrace& reference, const AlignedTrace& run, const Annotations& annotations) {
  Matching matching = match(reference.alignment, run.alignment);
  if (!matching.findings.empty()) {
    throw InputError(
        fmt::format("{}: {}{}; expected the tensors of the reference{}", run.trace->directory.string(),
                    matching.findings[0].message,
                    matching.findings.size() == 1 ? "" : fmt::format(" (and {} more)", matching.findings.size() - 1),
                    hint_at_routing(matching.findings[0], annotations)));
  }
  return matching;
}

// The runs that the estimate comes from, in memory.
struct AlignedRuns {
  AlignedTrace reference;
  std::vector<AlignedTrace> others;  // the perturbed ones, then the rerun if there is one
  std::vector<Matching> matchings;   // owns the rows that pairs of routed tokens share
  std::vector<RunDifferences> differences;
};

// Measures how `run` differs from `from`, which is the reference or the rerun.
RunDifferences measure_run(AlignedRuns& runs, const AlignedTrace& from, const AlignedTrace& run, std::string_view role,
                           const Annotations& annotations, Team& team) {
  const std::string directory = run.trace->directory.string();
  RunDifferences result;
  result.what = directory;
  const Matching& matching = runs.matchings.emplace_back(match_run(from, run, annotations));
  result.pairs = matching.pairs;
  result.rerouted = find_changed_pairs(result.pairs, matching.reroutes);
  ProgressLine progress(fmt::format("comparing the {} {}", role, directory));
  result.differences = compare(result.pairs, {0, progress.callback()}, team);
  return result;
}

// Refuses runs of another program than the reference, which a rerun that equals it is not.
void require_same_program(AlignedRuns& runs, std::size_t perturbed, const EstimateOptions& options,
                          const Annotations& annotations, Team& team) {
  const RunDifferences& rerun = runs.differences.back();
  if (!differs(rerun)) return;
  std::vector<RunDifferences> from_rerun;
  for (std::size_t i = 0; i < perturbed; ++i) {
    from_rerun.push_back(
        measure_run(runs, runs.others.back(), runs.others[i], "rerun and the perturbed run", annotations, team));
  }
  require_program_of_reference(rerun, from_rerun, options);
}

}  // namespace

ToleranceFile estimate_tolerance(const EstimateToleranceOptions& options) {
  Team alone;
  Team& team = options.team == nullptr ? alone : *options.team;
  Trace reference = read_trace(options.reference, team);
  std::vector<Trace> others;
  const bool by_anchor = !options.anchor.empty(), has_rerun = !options.rerun.empty();
  const std::vector<fs::path> measured = by_anchor ? std::vector<fs::path>{options.anchor} : options.perturbed;
  for (const fs::path& directory : measured) others.push_back(read_trace(directory, team));
  if (has_rerun) others.push_back(read_trace(options.rerun, team));
  const std::span<const Trace> perturbed(others.data(), measured.size());
  const Trace* const rerun = has_rerun ? &others.back() : nullptr;
  // The runs are identified before anything is compared, because that costs nothing.
  ToleranceFile identity;
  by_anchor ? identify_anchor(reference, others[0], rerun, identity)
            : identify_runs(reference, perturbed, rerun, identity);
  if (options.estimator && options.estimator != identity.estimator) {
    throw InputError(fmt::format("--estimator {}: {} was perturbed at the {}; expected runs of that estimator",
                                 name_of(*options.estimator), perturbed[0].directory.string(),
                                 name_of(identity.estimator)));
  }
  const EstimateOptions estimate_options{options.margin, compute_dtype_of(reference), identity.estimator, by_anchor};

  const Annotations annotations = load_annotations(options.annotations, reference);
  AlignedRuns runs;
  runs.reference = align_whole(std::move(reference), annotations);
  const ModelLayout layout = layout_of(runs.reference.alignment);
  runs.others.reserve(others.size());  // pairs point into them
  for (Trace& trace : others) {
    const std::string_view role = runs.others.size() >= measured.size() ? "rerun"
                                  : by_anchor                           ? "anchor"
                                                                        : "perturbed run";
    const AlignedTrace& run = runs.others.emplace_back(align_whole(std::move(trace), annotations, layout));
    runs.differences.push_back(measure_run(runs, runs.reference, run, role, annotations, team));
    require_same_beginning(runs.differences.back());  // of each, before the next is compared
  }
  if (has_rerun && !by_anchor) require_same_program(runs, measured.size(), estimate_options, annotations, team);
  ToleranceFile file =
      estimate({runs.differences.data(), measured.size()}, has_rerun ? &runs.differences.back() : nullptr,
               estimate_options, measure_own_sums(runs.reference.alignment));
  file.updates = measure_update_tolerances(runs.reference, runs.differences, 0);
  file.options = measure_option_tolerances(runs.reference, runs.others);
  file.reference_run = identity.reference_run;
  file.reference_digest = digest_of(*runs.reference.trace);
  file.perturbed_runs = identity.perturbed_runs;
  file.seeds = identity.seeds;
  file.rerun = identity.rerun;
  return file;
}

ToleranceFile estimate_tolerance(EstimateToleranceOptions options, const CollectFurther& collect_further) {
  const auto is_perturbed = [&](const UnlikeOthers& unlike) {
    return std::ranges::find(options.perturbed, fs::path(unlike.run)) != options.perturbed.end();
  };
  try {
    return estimate_tolerance(options);
  } catch (const UnlikeOthers& unlike) {
    if (!is_perturbed(unlike)) throw;
    spdlog::info("{}: unlike the other perturbed runs: {} more tell whether rounding decides a choice of the program",
                 printable(unlike.run), kFurtherRuns);
  }
  std::ranges::copy(collect_further(kFurtherRuns), std::back_inserter(options.perturbed));
  std::string left_out;
  try {
    return estimate_tolerance(options);
  } catch (const UnlikeOthers& unlike) {
    if (!is_perturbed(unlike)) throw;
    std::erase(options.perturbed, fs::path(unlike.run));
    left_out = fmt::format("left out, of {} perturbed runs: {}", options.perturbed.size() + 1, unlike.what());
  }
  ToleranceFile file = estimate_tolerance(options);
  file.notes.push_back(std::move(left_out));
  return file;
}

void require_beginning_of_reference(const EstimateToleranceOptions& options, const fs::path& run) {
  Team alone;
  Trace trace = read_trace(options.reference);
  const Annotations annotations = load_annotations(options.annotations, trace);
  const AlignedTrace reference = align_whole(std::move(trace), annotations);
  const AlignedTrace aligned = align_whole(read_trace(run), annotations, layout_of(reference.alignment));
  RunDifferences beginning;
  beginning.what = run.string();
  const Matching matching = match_run(reference, aligned, annotations);
  std::copy_if(matching.pairs.begin(), matching.pairs.end(), std::back_inserter(beginning.pairs),
               [](const TensorPair& pair) { return pair.reference->id.kind == Kind::kParam; });
  beginning.differences = compare(beginning.pairs, {}, alone);
  require_same_beginning(beginning);
}

void write_tolerances(const ToleranceFile& file, const fs::path& output) {
  write_file(output, sealed_by_key(to_yaml(file)));
}

std::string summary_of(const ToleranceFile& file, const std::string& output) {
  const auto noise = std::count_if(file.tensors.begin(), file.tensors.end(),
                                   [](const auto& item) { return item.second.allowed >= 1; });
  const std::string runs =
      is_by_anchor(file) ? "an anchor" : fmt::format("{} perturbed runs", file.perturbed_runs.size());
  std::string text = fmt::format("{}: {} tolerances from {}{}, margin {}\n", output, file.tensors.size(), runs,
                                 file.rerun ? " and a rerun" : "", file.margin);
  if (noise > 0) {
    text += fmt::format("note: {} of them are 1 or more: pure noise, which a check reports as untrusted\n", noise);
  }
  for (const std::string& note : file.notes) text += fmt::format("note: {}\n", note);
  return text;
}

}  // namespace ttrace
