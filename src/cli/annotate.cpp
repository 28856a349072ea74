// `ttrace annotate`: which annotations does a trace call for?
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "annotate/correspondence_draft.h"
#include "annotate/propose.h"
#include "base/error.h"
#include "cli/commands.h"
#include "correspond/translate.h"
#include "files/annotation_file.h"
#include "files/correspondence_file.h"
#include "files/regular_file.h"
#include "host/write_file.h"
#include "identify/program.h"
#include "load/further.h"
#include "workflow/annotations.h"
#include "workflow/reference.h"
#include "workflow/report_files.h"
#include "workflow/saved.h"

namespace ttrace::cli {
namespace {

struct AnnotateOptions {
  std::vector<std::string> traces;
  std::string reference, python;
  AnnotationSource annotations;
  std::string output;
};

// Annotations are of the candidate's names.
std::string correspondence_draft(const AnnotateOptions& options, Trace reference, Trace candidate,
                                 const Annotations& given, std::string& summary) {
  if (candidate.world_size > 1 && given.path.empty() && !says_mapping(candidate)) {
    throw InputError(fmt::format(
        "{}: another program than {}, by its parameters' names, and nothing says how its {} ranks hold them; expected "
        "its annotations (-a), or a run of one process",
        candidate.directory.string(), reference.directory.string(), candidate.world_size));
  }
  const AlignedTrace trusted = align_whole(std::move(reference), Annotations{});
  const bool is_alone = candidate.world_size == 1;
  CorrespondenceDraft draft = draft_correspondence(trusted, align_trace(std::move(candidate), given));
  if (!is_alone && draft.found[0] > 0) {  // what the reference has tells how some tensors of several ranks lie
    const Correspondence first = parse_correspondence(draft.text, "the draft");
    candidate = read_run(options.traces.front(), {options.python});
    const Alignment model = in_names_of_candidate(first, 0, trusted, candidate);
    draft = draft_correspondence(trusted, align_trace(std::move(candidate), given, layout_of(model)));
  }
  if (draft.found[0] == 0) {
    throw InputError(fmt::format(
        "{}: no parameter has the values of one of {}; expected two programs that begin with the same parameters, "
        "recorded before their first step",
        options.traces.front(), options.reference));
  }
  parse_correspondence(draft.text, options.output.empty() ? "the draft" : options.output);
  summary = summary_of(draft);
  return draft.text;
}

// Writes what was asked for: on stdout, or in a file.
int finish(const AnnotateOptions& options, std::string text, const std::string& summary) {
  if (!options.output.empty()) {
    write_file(options.output, text);
    text = fmt::format("{}: {}\n", options.output, summary);
  }
  ReportFiles().write([&] { return text; });
  return kExitSame;
}

int run(const AnnotateOptions& options) {
  const Annotations given = load_annotations(options.annotations);
  if (!options.reference.empty() && options.traces.size() == 1) {
    Trace trusted = read_run(options.reference, {options.python}),
          candidate = read_run(options.traces.front(), {options.python});
    if (names_differ(trusted, candidate)) {
      std::string summary;
      std::string text = correspondence_draft(options, std::move(trusted), std::move(candidate), given, summary);
      return finish(options, std::move(text), summary);
    }
  }
  const std::string given_text = given.path.empty() ? "" : read_text_file(given.path, "an annotation file");
  const auto reference = read_reference(options.reference, given, options.python);
  std::vector<Trace> traces;
  std::vector<const Trace*> candidates;
  for (const std::string& path : options.traces) {
    traces.push_back(read_run(path, {options.python}));
    keep_elements(traces.back(), "`ttrace annotate`");
    // Axes are said, of several traces, of those that do not say their own.
    settle_axes(traces.back(), given, options.traces.size() == 1 ? AxesOf::kThisTrace : AxesOf::kAnother);
  }
  for (const Trace& trace : traces) candidates.push_back(&trace);
  const Draft draft = propose(candidates, given, reference ? &reference->alignment : nullptr);
  const std::string text = to_yaml(draft, given_text);
  parse_annotations(text, options.output.empty() ? "the draft" : options.output, preset_directory());
  return finish(options, text, summary_of(draft));
}

}  // namespace

void add_annotate(CLI::App& app, Run& run_command) {
  const auto options = std::make_shared<AnnotateOptions>();
  CLI::App* annotate = app.add_subcommand("annotate", "Draft annotations for a trace");
  annotate->add_option("TRACE", options->traces, "Directories of the parallel program's traces, on one mesh or several")
      ->required();
  annotate->add_option("-o,--output", options->output, "Write the draft to this file [stdout]")->type_name("FILE");
  add_option(*annotate, option::kReference, options->reference)
      ->description("Trace of the trusted run: with it a draft is measured, without it mostly guessed");
  add_annotation_options(*annotate, options->annotations)
      ->description("Annotations to start from (YAML): the draft holds them, and lines for what they do not place");
  add_option(*annotate, option::kAxes, options->annotations.axes);
  add_option(*annotate, option::kPython, options->python);
  annotate->footer(R"(Each line of a draft says what it was seen on and why it is there: `# certain`
where only this placement puts the shards together to the reference's values,
`# guess` where others would do, or none does. Lines that begin with `#?` do not
count: sums and factors by which a wrong program would look right, and splits by
which nothing comes near the reference. `ttrace check` names those it would
need; take the `#?` away where they are meant.

One draft may hold for several meshes: give the traces of all. What they say of
different axes is put together; where they contradict each other it says so.
Tensors that are whole on every rank need no rule.

Where the parameters of TRACE and --reference have other names, as two programs
for one model do, the draft is a correspondence (check --correspondence): by
equal parameters, and by activations near each other.

Examples:
  ttrace annotate candidate --reference reference -o draft.yaml
  ttrace annotate tp2 dp2 pp2 --reference reference -o draft.yaml
  ttrace annotate candidate --reference reference -a gpt.yaml -o draft.yaml
  ttrace annotate megatron --reference huggingface -o correspondence.yaml

Exit codes: 0 the draft is written, 2 could not look.)");
  annotate->callback([options, &run_command] { run_command = [options] { return run(*options); }; });
}

}  // namespace ttrace::cli
