// `ttrace explain`: where do the shards of a tensor lie in the whole, and which annotation says so?
#include "annotate/explain.h"

#include <memory>
#include <vector>

#include "cli/commands.h"
#include "workflow/annotations.h"
#include "workflow/reference.h"
#include "workflow/report_files.h"
#include "workflow/saved.h"
#include "workflow/translated.h"

namespace ttrace::cli {
namespace {

struct ExplainOptions {
  std::string reference, candidate, correspondence, python;
  AnnotationSource annotations;
  std::string pattern;
};

int run(const ExplainOptions& options) {
  Trace trace = read_run_as_it_is(options.candidate, {options.python});
  AnnotationSource source = options.annotations;
  Correspondence rules;
  if (!options.correspondence.empty()) {
    rules = load_correspondence(options.correspondence, source.settings, {options.reference, options.candidate});
  }
  const Annotations annotations = load_annotations(source, trace);
  if (!options.correspondence.empty()) {
    auto trusted = read_reference(options.reference, Annotations{}, options.python);
    TranslatedRun run = align_by_correspondence(rules, *trusted, std::move(trace), annotations);
    trusted->alignment = std::move(run.translation.reference);
    const AlignedTrace translated{std::move(run.candidate.trace), std::move(run.translation.candidate)};
    const std::vector<ExplainedSide> sides = {{"reference", *trusted},
                                              {"candidate", translated, &run.translation.recorded_as}};
    ReportFiles().write([&] { return explain(annotations, sides, options.pattern); });
    return kExitSame;
  }
  const auto reference = read_reference(options.reference, annotations, options.python);
  const AlignedTrace candidate = align_trace(std::move(trace), annotations, layout_of(reference));
  std::vector<ExplainedSide> sides;
  if (reference) sides.push_back({"reference", *reference});
  sides.push_back({"candidate", candidate});
  ReportFiles().write([&] { return explain(annotations, sides, options.pattern); });
  return kExitSame;
}

}  // namespace

void add_explain(CLI::App& app, Run& run_command) {
  const auto options = std::make_shared<ExplainOptions>();
  CLI::App* explain = app.add_subcommand("explain", "Show how the shards of tensors were put together");
  explain->add_option("CANDIDATE", options->candidate, "Trace of the run under test, or a checkpoint")->required();
  explain->add_option("NAME", options->pattern, "A glob or dotted suffix of tensors' names")->required();
  CLI::Option* reference = add_option(*explain, option::kReference, options->reference);
  add_annotation_options(*explain, options->annotations);
  add_option(*explain, option::kAxes, options->annotations.axes);
  add_option(*explain, option::kCorrespondence, options->correspondence)->needs(reference);
  add_option(*explain, option::kPython, options->python);
  explain->footer(R"(Nothing is judged. Shown is, for each tensor, the rule that placed it, what each
axis does, and which part of the whole each rank holds. With --correspondence
names and pieces are the reference's, and what the candidate's are made of is
said.

Examples:
  ttrace explain candidate linear_fc1.weight -a gpt.yaml
  ttrace explain candidate 'layers.0.mlp.**' --reference reference -a gpt.yaml
  ttrace explain megatron layers.0.self_attn.q_proj.weight \
    --reference huggingface -a megatron_llama \
    --correspondence transformers_megatron_llama

Exit codes: 0 shown, 2 could not look (misuse, unreadable input, no tensor of
that name).)");
  explain->callback([options, &run_command] { run_command = [options] { return run(*options); }; });
}

}  // namespace ttrace::cli
