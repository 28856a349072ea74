#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "advice/cases.h"
#include "host/shell_words.h"

namespace ttrace {
namespace {

std::int64_t count_wrong(const Report& report) { return report.totals.counts.fail + report.totals.counts.missing; }

std::int64_t count_tensors(const Report& report) {
  return report.totals.counts.compared + report.totals.counts.missing;
}

// Returns the name of an initial parameter that is not the reference's, though every rank holds all of it: whatever
// annotations say. Empty where there is none.
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

// True where a tensor is wrong whose place is no guess.
bool is_known_of_some(const Report& report) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [](const Finding& finding) { return finding.verdict == Verdict::kFail && !finding.guessed; });
}

std::string draft_command(const Report& report, const Situation& situation) {
  return fmt::format("ttrace annotate {} --reference {}{} -o annotations.yaml", shell_word(report.runs.candidate),
                     shell_word(report.runs.reference),
                     situation.axes.empty() ? "" : " --axes " + shell_word(situation.axes));
}

// Says what of the differences is too large for rounding; empty where that is not known.
std::string describe_beyond(const Report& report, const std::optional<BeyondDefault>& beyond) {
  if (!beyond) return "";
  if (beyond->tensors == 0) return ", none by more than `-t default` allows";
  const Finding& first = report.findings[beyond->first];
  return fmt::format(", {} by more than `-t default` allows, first {}: rel_err {:.3g}, allowed {:.3g}", beyond->tensors,
                     to_string(first.id), first.difference->rel_err(), beyond->allowed);
}

std::string estimate_command(const Report& report) {
  return fmt::format("ttrace estimate-tolerance -o tolerance.yaml --reference {}", shell_word(report.runs.reference));
}

// True where what is wrong first is explained, and its place is no guess: no line of annotations would make it right. Of
// parameters that begin otherwise, the ranks may hold parts.
bool is_explained(const Report& report) {
  const std::vector<RootCause>& roots = report.explanation.roots;
  if (roots.empty() || !roots[0].diagnosis || !report.explanation.questions.empty()) return false;
  const Finding& first = report.findings[roots[0].finding];
  return !first.guessed && first.id.kind != Kind::kParam;
}

// Returns the line that records both runs anew, whole in these iterations; nothing where one does not say how it was made.
std::optional<std::string> collect_command(const Report& report, const Situation& situation,
                                           const std::string& iterations) {
  std::vector<std::string> lines;
  for (const auto& [aligned, directory] : {std::pair(&situation.reference, &report.runs.reference),
                                           std::pair(&situation.candidate, &report.runs.candidate)}) {
    const Provenance& made = aligned->trace->provenance;
    if (made.command.empty()) return std::nullopt;
    const std::string axes = made.axes.value_or("");
    lines.push_back(fmt::format("ttrace collect -o {} --iterations {}{} -- {}",
                                shell_word(fmt::format("{}-{}", *directory, iterations)), iterations,
                                axes.empty() ? "" : " --axes " + shell_word(axes), shell_line(made.command)));
  }
  return fmt::format("{}", fmt::join(lines, " && "));
}

// True where each rank has recorded its part of the tensor, wherever that lies. No line places what some do not have.
bool is_there(const TensorId& id, const Alignment& alignment) {
  return alignment.tensors.contains(id) ||
         std::any_of(alignment.findings.begin(), alignment.findings.end(),
                     [&](const Finding& finding) { return finding.id == id && finding.reason != Reason::kOmission; });
}

}  // namespace

std::optional<Step> lacks_correspondence(const Report& report, const Situation& situation) {
  if (!situation.correspondence.empty()) return std::nullopt;
  const bool is_by_name = std::any_of(report.findings.begin(), report.findings.end(), [](const Finding& finding) {
    return finding.reason == Reason::kOtherNames && finding.verdict == Verdict::kMissing;
  });
  if (!is_by_name) return std::nullopt;
  return Step{std::nullopt, fmt::format("ttrace annotate {} --reference {} -o correspondence.yaml",
                                        shell_word(report.runs.candidate), shell_word(report.runs.reference))};
}

std::optional<Step> lacks_activations(const Report& report, const Situation& situation) {
  const std::vector<RootCause>& roots = report.explanation.roots;
  const auto jump = std::ranges::find(report.findings, Reason::kPossibleJump, &Finding::reason);
  const bool is_light_root = !roots.empty() && !roots[0].diagnosis && report.findings[roots[0].finding].light;
  if (!is_light_root && jump == report.findings.end()) return std::nullopt;
  const auto finding = is_light_root ? roots[0].finding : static_cast<std::size_t>(jump - report.findings.begin());
  const std::int32_t iteration = report.findings[finding].id.iteration;
  const auto command = collect_command(report, situation, fmt::format("0-{}", iteration));
  if (!command) return std::nullopt;
  return Step{std::nullopt, command,
              fmt::format("of iteration {} only parameters, their gradients and losses were recorded, and not what "
                          "modules took and returned: where it goes wrong first is seen in a recording of "
                          "`--iterations 0-{}`",
                          iteration, iteration),
              finding};
}

std::optional<Step> lacks_annotations(const Report& report, const Situation& situation) {
  if (situation.is_mapping_known || is_explained(report)) return std::nullopt;
  const std::string other = other_parameter(situation.candidate.alignment, report);
  const std::string or_else =
      other.empty() ? ""
                    : fmt::format(
                          "; or the runs began with different parameters: {}, which every rank holds whole, is not the "
                          "reference's",
                          printable(other));
  std::string what = fmt::format(
      "no annotations (-a), and neither the program nor its tensors say how {} ranks hold them: as their "
      "shapes place them, {} of {} differ; `ttrace annotate` drafts a file for -a{}",
      situation.candidate.trace->world_size, count_wrong(report), count_tensors(report), or_else);
  if (is_known_of_some(report)) return Step{std::nullopt, draft_command(report, situation), std::move(what)};
  return Step{std::move(what), draft_command(report, situation)};
}

std::optional<Step> lacks_placement(const Report& report, const Situation& situation) {
  const std::vector<Question>& questions = report.explanation.questions;
  const bool may_be_placed = std::any_of(questions.begin(), questions.end(), [&](const Question& question) {
    const Finding& finding = report.findings[question.finding];
    return finding.reason == Reason::kGuessedPlacement && is_there(finding.id, situation.candidate.alignment);
  });
  if (!may_be_placed) return std::nullopt;
  return Step{std::nullopt, draft_command(report, situation)};
}

std::optional<Step> lacks_iterations(const Report& report, const Situation& situation) {
  const auto& zero = report.proof.zero_gradients;
  if (!zero) return std::nullopt;
  const auto command = collect_command(report, situation, fmt::format("{}-{}", zero->first, zero->last + 1));
  return command ? std::optional(Step{std::nullopt, command}) : std::nullopt;
}

std::optional<Step> lacks_measurement(const Report& report, const Situation& situation) {
  const std::vector<std::string>& command = situation.reference.trace->provenance.command;
  if (!report.proof.unmeasured || !report.proof.by_kind || command.empty()) return std::nullopt;
  const std::set<Kind> unproved = unproved_kinds(*report.proof.by_kind);
  const bool by_noise = std::any_of(unproved.begin(), unproved.end(), [&](Kind kind) {
    return report.proof.by_kind->at(kind).others.contains(std::string(name_of(Reason::kNoise)));
  });
  const bool is_near = std::any_of(report.findings.begin(), report.findings.end(),
                                   [](const Finding& finding) { return finding.reason == Reason::kNearUnmeasured; });
  if (!by_noise && !is_near && report.proof.unproved_steps.empty()) return std::nullopt;
  return Step{std::nullopt, fmt::format("{} -- {}", estimate_command(report), shell_words(command))};
}

std::optional<Step> lacks_order_of_microbatches(const Report& report, const Situation& situation) {
  if (situation.correspondence.empty()) return std::nullopt;
  using Side = std::pair<const AlignedTrace*, const char*>;
  for (const auto& [aligned, option] :
       {Side{&situation.candidate, "-a"}, Side{&situation.reference, "--reference-annotations"}}) {
    const std::string& axes = aligned->alignment.open_order;
    if (axes.empty()) continue;
    return Step{
        fmt::format(
            "which micro-batches the ranks along {0} run is not known, and {1} of {2} tensors differ where they "
            "interleave: of the integer inputs none that tells has a counterpart; write microbatches: {{order: "
            "blocked}} or {{order: interleaved}} in the annotations ({3}), or a line for the model's inputs in {4}",
            axes, count_wrong(report), count_tensors(report), option, situation.correspondence),
        std::nullopt};
  }
  return std::nullopt;
}

std::optional<Step> lacks_tolerances(const Report& report, const Situation& situation) {
  const bool only_values = std::all_of(report.findings.begin(), report.findings.end(), [](const Finding& finding) {
    return !is_wrong(finding) || finding.reason == Reason::kExceedsTolerance;
  });
  if (situation.has_tolerances || situation.is_saved || !only_values) return std::nullopt;
  const std::string estimate = estimate_command(report);
  std::string what = fmt::format(
      "no tolerances (-t), and {} of {} tensors are not equal bit for bit{}; `ttrace estimate-tolerance` measures what "
      "rounding does to each, a file for -t",
      count_wrong(report), count_tensors(report), describe_beyond(report, situation.beyond));
  const std::vector<std::string>& command = situation.reference.trace->provenance.command;
  if (!command.empty()) return Step{std::move(what), fmt::format("{} -- {}", estimate, shell_words(command))};
  // A block of a program, as `ttrace.record` leaves it, or values from elsewhere.
  what +=
      ", of further recordings of the reference, which no command makes: one more, and three perturbed ones "
      "(`ttrace.record(..., perturb=1)` to 3)";
  return Step{std::move(what), estimate + " --rerun again --perturbed perturbed-1 perturbed-2 perturbed-3"};
}

}  // namespace ttrace
