// `ttrace show`: what is in a logical tensor, and in the reference's?
#include "inspect/show.h"

#include <memory>

#include "cli/commands.h"
#include "ttrace/load/trace_reader.h"
#include "workflow/annotations.h"
#include "workflow/reference.h"

namespace ttrace::cli {
namespace {

struct ShowArguments {
  std::string reference, candidate;
  AnnotationSource annotations;
  ShowOptions show;
};

int run(const ShowArguments& arguments) {
  const Annotations annotations = load_annotations(arguments.annotations);
  const auto reference = read_reference(arguments.reference, annotations);
  const AlignedTrace candidate = align_trace(read_trace(arguments.candidate), annotations, layout_of(reference));
  ReportFiles().write([&] { return show(candidate, reference ? &*reference : nullptr, arguments.show); });
  return kExitSame;
}

}  // namespace

void add_show(CLI::App& app, Run& run_command) {
  const auto arguments = std::make_shared<ShowArguments>();
  CLI::App* command = app.add_subcommand("show", "Print logical tensors, beside the reference's");
  command->add_option("CANDIDATE", arguments->candidate, "Trace of the run under test")->required();
  command->add_option("NAME", arguments->show.choice.pattern, "A glob or dotted suffix of tensors' names")->required();
  add_reference_option(*command, arguments->reference);
  add_annotation_options(*command, arguments->annotations);
  add_axes_option(*command, arguments->annotations);
  add_choice_options(*command, arguments->show.choice);
  command->add_option("--slice", arguments->show.slice, "Only these elements, as in '0:4, :, -1'")->type_name("SLICE");
  command->footer(R"(A tensor is put together from its shards, and printed as NumPy does, with the
rank that holds each part. Without --iteration or --microbatch the first one is
shown. Nothing is judged.

Examples:
  ttrace show candidate layers.0.mlp.linear_fc1.weight -a gpt.yaml \
    --kind main_grad
  ttrace show candidate embedding --reference reference -a gpt.yaml \
    --kind output --slice '0:4, 0, :'

Exit codes: 0 shown, 2 could not look (misuse, unreadable input, no tensor of
that name).)");
  command->callback([arguments, &run_command] { run_command = [arguments] { return run(*arguments); }; });
}

}  // namespace ttrace::cli
