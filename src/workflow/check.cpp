// `ttrace check`: does the candidate compute what the reference computes, and if not, where does it first
// go wrong?
#include "workflow/check.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "process/shell_words.h"
#include "terminal/progress_line.h"
#include "terminal/report_files.h"
#include "ttrace/diagnose/root_causes.h"
#include "ttrace/error.h"
#include "ttrace/history/history.h"
#include "ttrace/judge/judge.h"
#include "ttrace/load/annotation_file.h"
#include "ttrace/load/tolerance_file.h"
#include "ttrace/load/trace_reader.h"
#include "ttrace/report/report.h"
#include "ttrace/rewrite/provenance.h"

namespace ttrace {
namespace {

// The same check, with every finding.
std::string command_for_all(const CheckOptions& options) {
  std::string command = fmt::format("ttrace check --reference {} --candidate {}", shell_word(options.reference),
                                    shell_word(options.candidate));
  const auto add = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) command += fmt::format(" {} {}", name, shell_word(value));
  };
  add("-a", options.annotations);
  add("-t", options.tolerance);
  add("--only", options.only);
  return command + (options.strict ? " --strict --all" : " --all");
}

// A mistake in the annotations matters where they are needed: on several ranks.
void add_notes(const std::string& side, const Trace& trace, const Alignment& alignment,
               std::vector<std::string>& notes) {
  if (trace.world_size == 1) return;
  for (const std::string& note : alignment.notes) notes.push_back(fmt::format("{}: {}", side, note));
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

CheckRecord record_of(const Trace& reference, const Trace& candidate) {
  CheckRecord check;
  check.reference_run = reference.run_id;
  check.candidate_run = candidate.run_id;
  const auto facts = nlohmann::json::parse(candidate.provenance, nullptr, /*allow_exceptions=*/false);
  const auto text = [&](const char* key) {
    const auto found = facts.find(key);
    return found != facts.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  check.started = text("started");
  check.git_commit = text("git_commit");
  const auto command = facts.find("command");
  if (command == facts.end() || !command->is_array()) return check;
  std::vector<std::string> words;
  for (const auto& word : *command) {
    if (word.is_string()) words.push_back(word.get<std::string>());
  }
  check.command = shell_line(words);
  return check;
}

struct Loaded {
  Trace reference, candidate;
  Annotations annotations;
  std::optional<ToleranceFile> tolerance;
};

Loaded load(const CheckOptions& options) {
  Loaded loaded{read_trace(options.reference), read_trace(options.candidate), {}, std::nullopt};
  require_same_values(loaded.reference, loaded.candidate);
  if (!options.annotations.empty()) loaded.annotations = read_annotations(options.annotations);
  if (!options.tolerance.empty()) {
    loaded.tolerance = read_tolerances(options.tolerance);
    require_fits(*loaded.tolerance, loaded.reference, loaded.candidate);
  }
  return loaded;
}

struct Aligned {
  Alignment reference, candidate;
};

// The candidate is measured against the reference's number of layers, not against its own.
Aligned align_both(const Loaded& loaded, const CheckOptions& options) {
  Alignment reference = align(loaded.reference, loaded.annotations, {});
  require_whole(reference, options.reference);
  Alignment candidate = align(loaded.candidate, loaded.annotations, layout_of(reference));
  return {std::move(reference), std::move(candidate)};
}

std::vector<std::string> notes_of(const Loaded& loaded, const Aligned& aligned) {
  std::vector<std::string> notes;
  add_notes("reference", loaded.reference, aligned.reference, notes);
  add_notes("candidate", loaded.candidate, aligned.candidate, notes);
  if (loaded.tolerance) note_overrides(*loaded.tolerance, aligned.reference, notes);
  if (loaded.reference.run_id == loaded.candidate.run_id) {
    notes.push_back("reference and candidate are one and the same run");
  }
  return notes;
}

}  // namespace

Checked check(const CheckOptions& options) {
  // load, align
  const Loaded loaded = load(options);
  Aligned aligned = align_both(loaded, options);
  const std::vector<std::string> notes = notes_of(loaded, aligned);
  if (!options.only.empty()) keep_only(aligned.reference, aligned.candidate, options.only);

  // merge, compare: in one pass over memory, for the merge is a view.
  const Matching matching = match(aligned.reference, aligned.candidate);
  const std::vector<Difference> differences = measure(matching, options.threads);

  // judge
  const ToleranceFile* tolerance = loaded.tolerance ? &*loaded.tolerance : nullptr;
  Report report = conclude(aligned.reference, matching, differences, tolerance, options.waivers);
  report.reference = options.reference;
  report.candidate = options.candidate;
  report.strict = options.strict;
  report.command_for_all = command_for_all(options);
  report.notes.insert(report.notes.end(), notes.begin(), notes.end());
  const Trace& candidate = loaded.candidate;
  const Mesh mesh = {candidate.axes, candidate.aliases, candidate.views};
  add_root_causes(
      report, {aligned.reference, aligned.candidate, mesh, loaded.annotations.tied, has_rewritten_modules(candidate)});
  return {std::move(report), record_of(loaded.reference, candidate)};
}

}  // namespace ttrace
