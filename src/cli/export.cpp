// `ttrace export`: logical tensors, in files that other programs read.
#include "inspect/export.h"

#include <fmt/format.h>

#include <memory>

#include "align/aligned_trace.h"
#include "cli/commands.h"
#include "text/readable.h"
#include "workflow/annotations.h"
#include "workflow/reference.h"
#include "workflow/saved.h"
#include "workflow/translated.h"

namespace ttrace::cli {
namespace {

struct ExportOptions {
  std::string trace, output, reference, correspondence, python;
  AnnotationSource annotations;
  TensorChoice choice;
};

// Returns the tensors; with a correspondence, those that have a counterpart in the reference, as that has them.
AlignedTrace exported(const ExportOptions& options) {
  Trace trace = read_run_as_it_is(options.trace, {options.python});
  AnnotationSource source = options.annotations;
  Correspondence rules;
  if (!options.correspondence.empty()) {
    rules = load_correspondence(options.correspondence, source.settings, {options.reference, options.trace});
  }
  const Annotations annotations = load_annotations(source, trace);
  if (options.correspondence.empty()) return align_trace(std::move(trace), annotations);
  const auto reference = read_reference(options.reference, Annotations{}, options.python);
  TranslatedRun run = align_by_correspondence(rules, *reference, std::move(trace), annotations);
  Alignment& tensors = run.translation.candidate;
  std::erase_if(tensors.tensors,
                [&](const auto& item) { return !run.translation.reference.tensors.contains(item.first); });
  return {std::move(run.candidate.trace), std::move(tensors)};
}

int run(const ExportOptions& options) {
  const AlignedTrace aligned = exported(options);
  const std::vector<const LogicalTensor*> tensors = choose_tensors(aligned.alignment, options.choice);
  export_tensors(tensors, options.output);
  std::uint64_t bytes = 0;
  for (const LogicalTensor* tensor : tensors) bytes += tensor->bytes;
  fmt::print("{}: {} tensor{}, put together from {} of shards\n", printable(options.output),
             readable_count(tensors.size()), tensors.size() == 1 ? "" : "s", readable_bytes(bytes));
  for (const Finding& finding : aligned.alignment.findings) {
    if (finding.id.name.empty()) continue;
    fmt::print("left out: {}: {}\n", to_string(finding.id), printable(finding.message));
  }
  return kExitSame;
}

}  // namespace

void add_export(CLI::App& app, Run& run_command) {
  const auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export", "Write logical tensors to a safetensors or NumPy file");
  command->add_option("TRACE", options->trace, "Directory of the trace, or a checkpoint")->required();
  command->add_option("-o,--output", options->output, "The file: OUT.safetensors or OUT.npz")
      ->required()
      ->type_name("OUT");
  add_annotation_options(*command, options->annotations);
  add_option(*command, option::kAxes, options->annotations.axes);
  CLI::Option* reference =
      add_option(*command, option::kReference, options->reference)
          ->description("Of a --correspondence: the trace under whose names, and in whose layout, tensors are written");
  reference->needs(add_option(*command, option::kCorrespondence, options->correspondence)->needs(reference));
  add_option(*command, option::kOnly, options->choice.pattern);
  add_choice_options(*command, options->choice);
  add_option(*command, option::kPython, options->python);
  command->footer(R"(The shards of each tensor are put together as `check` does. A tensor is called
iteration-0/microbatch-2/output/layers.0.mlp, and has its recorded bits; sums of
terms (partial placements) and scaled gradients are float64. NumPy knows neither
bfloat16 nor fp8: an .npz has them as float32. What could not be put together is
listed as left out.

Examples:
  ttrace export candidate -a gpt.yaml -o candidate.safetensors
  ttrace export candidate -a gpt.yaml -o grads.npz --kind main_grad \
    --only 'layers.0.**'
  ttrace export megatron -a megatron_llama --reference huggingface \
    --correspondence transformers_megatron_llama -o megatron.safetensors

Exit codes: 0 written, 2 could not look (misuse, unreadable input, no tensor of
that name, no room).)");
  command->callback([options, &run_command] { run_command = [options] { return run(*options); }; });
}

}  // namespace ttrace::cli
