// `ttrace lint`: do annotations fit a trace?
#include "annotate/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "load/trace_reader.h"
#include "workflow/annotations.h"
#include "workflow/reference.h"
#include "workflow/report_files.h"

namespace ttrace::cli {
namespace {

struct LintOptions {
  std::string trace, reference;
  AnnotationSource annotations;
  std::string json;
};

std::string to_json(const LintOptions& options, const std::vector<LintMessage>& messages) {
  nlohmann::ordered_json json;
  json["schema"] = "ttrace-lint/1";
  json["trace"] = options.trace;
  json["annotations"] = options.annotations.file;
  json["messages"] = nlohmann::ordered_json::array();
  for (const LintMessage& message : messages) {
    nlohmann::ordered_json object;
    object["check"] = name_of(message.check);
    object["mistake"] = is_mistake(message.check);
    object["file"] = nullptr;
    object["line"] = nullptr;
    if (message.source.line != 0) {
      object["file"] = message.source.file;
      object["line"] = message.source.line;
    }
    object["text"] = message.text;
    json["messages"].push_back(std::move(object));
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string to_text(const std::vector<LintMessage>& messages, std::size_t mistakes) {
  std::string text;
  for (const LintMessage& message : messages) {
    text += fmt::format("{}{} [{}]\n", is_mistake(message.check) ? "" : "note: ", message.text, name_of(message.check));
  }
  return text + fmt::format("{} to mend, {} to know of\n", mistakes, messages.size() - mistakes);
}

int run(const LintOptions& options) {
  std::vector<LintMessage> messages;
  ReportFiles files;
  files.add("--json", options.json, [&] { return to_json(options, messages); });
  const Annotations annotations = load_annotations(options.annotations);
  const auto reference = read_reference(options.reference, annotations);
  messages = lint(align_trace(read_trace(options.trace), annotations, layout_of(reference)), annotations,
                  reference ? &reference->alignment : nullptr);
  const auto mistakes = static_cast<std::size_t>(std::count_if(
      messages.begin(), messages.end(), [](const LintMessage& message) { return is_mistake(message.check); }));
  files.write([&] { return to_text(messages, mistakes); });
  return mistakes == 0 ? kExitSame : kExitDifferent;
}

}  // namespace

void add_lint(CLI::App& app, Run& run_command) {
  const auto options = std::make_shared<LintOptions>();
  CLI::App* lint = app.add_subcommand("lint", "Say what looks wrong with annotations for a trace");
  lint->add_option("TRACE", options->trace, "Directory of the parallel program's trace")->required();
  add_annotation_options(*lint, options->annotations)->required();
  add_option(*lint, option::kAxes, options->annotations.axes);
  add_option(*lint, option::kReference, options->reference)
      ->description("Trace of the trusted run: it knows the number of layers, and shapes");
  add_option(*lint, option::kJson, options->json);
  lint->footer(R"(Examples:
  ttrace lint candidate -a gpt.yaml
  ttrace lint candidate -a gpt.yaml --json - | jq '.messages[] | .text'

JSON: {"schema": "ttrace-lint/1", "trace", "annotations", "messages": [{"check":
misfit | unplaced | placed-by-shape | unused-rule | ambiguous | absent-axis |
uneven-split | misplaced | untied | no-sequence-parallelism,
"mistake": bool, "file", "line" (null: none), "text"}]}

Exit codes: 0 nothing to mend, 1 something to mend, 2 could not look.)");
  lint->callback([options, &run_command] { run_command = [options] { return run(*options); }; });
}

}  // namespace ttrace::cli
