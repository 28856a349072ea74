// `ttrace show`: what is in a logical tensor, and in the reference's?
#include "inspect/show.h"

#include <memory>

#include "cli/commands.h"
#include "workflow/annotations.h"
#include "workflow/reference.h"
#include "workflow/saved.h"
#include "workflow/translated.h"

namespace ttrace::cli {
namespace {

struct ShowArguments {
  std::string reference, candidate, correspondence, python;
  AnnotationSource annotations;
  ShowOptions show;
};

int run(const ShowArguments& arguments) {
  Trace trace = read_run_as_it_is(arguments.candidate, {arguments.python});
  const bool same_program = arguments.correspondence.empty();  // else the annotations are of the candidate's names
  AnnotationSource source = arguments.annotations;
  Correspondence rules;
  if (!same_program) {
    rules = load_correspondence(arguments.correspondence, source.settings, {arguments.reference, arguments.candidate});
  }
  const Annotations annotations = load_annotations(source, trace);
  auto reference = read_reference(arguments.reference, same_program ? annotations : Annotations{}, arguments.python);
  AlignedTrace candidate;
  if (same_program) {
    candidate = align_trace(std::move(trace), annotations, layout_of(reference));
  } else {
    TranslatedRun run = align_by_correspondence(rules, *reference, std::move(trace), annotations);
    reference->alignment = std::move(run.translation.reference);
    candidate = {std::move(run.candidate.trace), std::move(run.translation.candidate)};
  }
  ReportFiles().write([&] { return show(candidate, reference ? &*reference : nullptr, arguments.show); });
  return kExitSame;
}

}  // namespace

void add_show(CLI::App& app, Run& run_command) {
  const auto arguments = std::make_shared<ShowArguments>();
  CLI::App* command = app.add_subcommand("show", "Print logical tensors, beside the reference's");
  command->add_option("CANDIDATE", arguments->candidate, "Trace of the run under test, or a checkpoint")->required();
  command->add_option("NAME", arguments->show.choice.pattern, "A glob or dotted suffix of tensors' names")->required();
  CLI::Option* reference = add_option(*command, option::kReference, arguments->reference);
  add_annotation_options(*command, arguments->annotations);
  add_option(*command, option::kAxes, arguments->annotations.axes);
  add_option(*command, option::kCorrespondence, arguments->correspondence)->needs(reference);
  add_choice_options(*command, arguments->show.choice);
  command->add_option("--slice", arguments->show.slice, "Only these elements, as in '0:4, :, -1'")->type_name("SLICE");
  add_option(*command, option::kPython, arguments->python);
  command->footer(R"(A tensor is put together from its shards, and printed as NumPy does, with the
rank that holds each part. Without --iteration or --microbatch the first one is
shown. With --correspondence names are the reference's. Nothing is judged.

Examples:
  ttrace show candidate layers.0.mlp.linear_fc1.weight -a gpt.yaml \
    --kind main_grad
  ttrace show candidate embedding --reference reference -a gpt.yaml \
    --kind output --slice '0:4, 0, :'
  ttrace show megatron layers.0.self_attn.q_proj.weight -a megatron_llama \
    --reference huggingface --correspondence transformers_megatron_llama \
    --kind param

Exit codes: 0 shown, 2 could not look (misuse, unreadable input, no tensor of
that name).)");
  command->callback([arguments, &run_command] { run_command = [arguments] { return run(*arguments); }; });
}

}  // namespace ttrace::cli
