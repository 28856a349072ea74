#include "workflow/closer_look.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "align/aligned_trace.h"
#include "base/error.h"
#include "base/mesh.h"
#include "base/tensor_name.h"
#include "host/shell_words.h"
#include "load/trace_reader.h"
#include "workflow/annotations.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// The modules of the examined roots, by the names that the ranks have for them: a pipeline's stages number their layers
// themselves.
std::set<std::string> modules_on_ranks(const Alignment& alignment, const Report& report) {
  std::set<std::string> modules;
  for (const RootCause& root : report.explanation.roots) {
    const auto tensor = alignment.tensors.find(report.findings[root.finding].id);
    if (!root.examined || tensor == alignment.tensors.end()) continue;
    for (const Piece& piece : tensor->second.pieces()) {
      const TensorName name(piece.entry->id.name);
      modules.emplace(is_parameter_kind(piece.entry->id.kind) ? owner_of(name.path) : name.path);
    }
  }
  return modules;
}

InputError unknown_command(const Trace& trace, const CollectOptions& run) {
  std::string words;
  for (const std::string& pattern : run.selection.whole) words += " --whole " + shell_word(pattern);
  return InputError(
      fmt::format("{0}: does not say by what command it was collected, so that it cannot be run again; "
                  "expected you to type `ttrace collect -o {1} --sketch{2} --again {0} -- COMMAND`",
                  trace.directory.string(), run.output.string(), words));
}

CollectOptions run_again(const Trace& trace, const std::set<std::string>& modules, const fs::path& output,
                         const std::vector<std::string>& command) {
  const Provenance& origin = trace.provenance;
  CollectOptions run;
  run.output = output;
  const RecordedIterations recorded = iterations_of(trace);
  run.iterations = recorded.whole;
  run.then = recorded.then;
  run.selection = origin.selection;
  run.selection.sketch = true;
  run.selection.whole.insert(run.selection.whole.end(), modules.begin(), modules.end());
  run.axes = origin.axes.value_or("");
  run.again = trace.directory;
  run.stdout_to_stderr = true;  // where ours has the report
  run.command = command.empty() ? origin.command : command;
  if (command.empty()) run.working_directory = origin.directory;
  if (run.command.empty()) throw unknown_command(trace, run);
  return run;
}

}  // namespace

bool has_sketches(const Trace& trace) {
  return std::any_of(trace.ranks.begin(), trace.ranks.end(), [](const RankTrace& rank) {
    return std::any_of(rank.entries.begin(), rank.entries.end(),
                       [](const Entry& entry) { return entry.sketch != nullptr; });
  });
}

CloserLook plan_closer_look(const CheckOptions& check, const Report& first, const fs::path& output,
                            const std::vector<std::string>& command) {
  Trace recorded = read_trace(check.candidate);
  const Annotations annotations = load_annotations(check.annotations, recorded);
  const bool has_own = !check.reference_annotations.file.empty();
  const AlignedTrace reference =
      align_whole(read_trace(check.reference), has_own ? load_annotations(check.reference_annotations) : annotations);
  const AlignedTrace candidate = align_trace(std::move(recorded), annotations, layout_of(reference.alignment));
  CloserLook look{{}, check};
  look.check.tolerance_reference = check.reference;
  const auto add = [&](const AlignedTrace& side, std::string& directory, const char* name,
                       const std::vector<std::string>& of_side) {
    const std::set<std::string> modules = modules_on_ranks(side.alignment, first);
    if (modules.empty() || !has_sketches(*side.trace)) return;
    look.runs.push_back(run_again(*side.trace, modules, output / name, of_side));
    directory = look.runs.back().output.string();
  };
  add(reference, look.check.reference, "reference", {});
  add(candidate, look.check.candidate, "candidate", command);
  return look;
}

void add_closer_look(Report& report, const Report& closer) {
  for (RootCause& root : report.explanation.roots) {
    Finding& finding = report.findings[root.finding];
    const auto whole = std::find_if(closer.findings.begin(), closer.findings.end(), [&](const Finding& other) {
      return other.id == finding.id && other.verdict == Verdict::kFail && other.difference;
    });
    if (!root.examined || !finding.difference || !finding.difference->sketch || whole == closer.findings.end())
      continue;
    finding = *whole;
    const auto again =
        std::find_if(closer.explanation.roots.begin(), closer.explanation.roots.end(),
                     [&](const RootCause& other) { return closer.findings[other.finding].id == finding.id; });
    if (again == closer.explanation.roots.end() || !again->diagnosis) continue;
    root.diagnosis = again->diagnosis;
    root.residual = again->residual;
    root.sentence = again->sentence;
  }
}

}  // namespace ttrace
