// `ttrace annotate`: which annotations does a trace call for, and do those that there are fit it?
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "terminal/write_file.h"
#include "ttrace/annotate/lint.h"
#include "ttrace/annotate/propose.h"
#include "ttrace/error.h"
#include "ttrace/judge/match.h"
#include "ttrace/load/annotation_file.h"
#include "ttrace/load/trace_reader.h"

namespace ttrace::cli {
namespace {

struct AnnotateOptions {
  std::string trace, reference;
  std::string annotations;
  std::string output;
  std::string lint;
  bool json = false;
};

// The reference, aligned: what it holds is whole.
struct Reference {
  Trace trace;
  Alignment alignment;
};

std::unique_ptr<Reference> read_reference(const std::string& path, const Annotations& annotations) {
  if (path.empty()) return nullptr;
  auto reference = std::make_unique<Reference>();
  reference->trace = read_trace(path);
  reference->alignment = align(reference->trace, annotations, {});
  require_whole(reference->alignment, path);
  return reference;
}

std::string to_json(const AnnotateOptions& options, const std::vector<LintMessage>& messages) {
  nlohmann::ordered_json json;
  json["schema"] = "ttrace-lint/1";
  json["trace"] = options.trace;
  json["annotations"] = options.lint;
  json["messages"] = nlohmann::ordered_json::array();
  for (const LintMessage& message : messages) {
    nlohmann::ordered_json object;
    object["check"] = name_of(message.check);
    object["mistake"] = is_mistake(message.check);
    object["line"] = nullptr;
    if (message.line != 0) object["line"] = message.line;
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

int run_lint(const AnnotateOptions& options) {
  const Annotations annotations = read_annotations(options.lint);
  const auto reference = read_reference(options.reference, annotations);
  const Trace trace = read_trace(options.trace);
  const Alignment alignment = align(trace, annotations, reference ? layout_of(reference->alignment) : ModelLayout{});
  const std::vector<LintMessage> messages = lint(trace, annotations, alignment);
  const auto mistakes = static_cast<std::size_t>(std::count_if(
      messages.begin(), messages.end(), [](const LintMessage& message) { return is_mistake(message.check); }));
  std::cout << (options.json ? to_json(options, messages) : to_text(messages, mistakes)) << std::flush;
  return mistakes == 0 ? kExitSame : kExitDifferent;
}

int run_propose(const AnnotateOptions& options) {
  Annotations given;
  std::string given_text;
  if (!options.annotations.empty()) {
    given = read_annotations(options.annotations);
    std::ifstream file(options.annotations, std::ios::binary);
    given_text.assign(std::istreambuf_iterator<char>(file), {});
  }
  const auto reference = read_reference(options.reference, given);
  const Trace trace = read_trace(options.trace);
  const Draft draft = propose(trace, given, reference ? &reference->alignment : nullptr);
  const std::string text = to_yaml(draft, given_text);
  parse_annotations(text, options.output.empty() ? "the draft" : options.output);
  if (options.output.empty()) {
    std::cout << text << std::flush;
    return kExitSame;
  }
  write_file(options.output, text);
  std::cout << fmt::format("{}: {}\n", options.output, summary_of(draft)) << std::flush;
  return kExitSame;
}

int run(const AnnotateOptions& options) {
  if (!options.lint.empty() && !(options.output + options.annotations).empty()) {
    throw InputError("--lint: takes no -o and no -a; expected only a trace, --reference and --json with it");
  }
  if (options.lint.empty() && options.json)
    throw InputError("--json: there is nothing to list; expected it with --lint");
  const int code = options.lint.empty() ? run_propose(options) : run_lint(options);
  if (!std::cout) throw InputError("stdout: cannot be written; expected a place for the text");
  return code;
}

}  // namespace

void add_annotate(CLI::App& app, Run& run_command) {
  const auto options = std::make_shared<AnnotateOptions>();
  CLI::App* annotate = app.add_subcommand("annotate", "Draft annotations for a trace, or check some against it");
  annotate->add_option("TRACE", options->trace, "Directory of the parallel program's trace")->required();
  annotate->add_option("-o,--output", options->output, "Write the draft to this file (default: stdout)");
  annotate->add_option("--reference", options->reference,
                       "Trace of the trusted run: with it a draft is measured, without it mostly guessed");
  annotate->add_option("-a,--annotations", options->annotations,
                       "Annotations to start from (YAML): the draft holds them, and lines for what they do not place");
  annotate->add_option("--lint", options->lint, "Draft nothing; say what looks wrong with this annotation file");
  annotate->add_flag("--json", options->json, "With --lint: JSON on stdout");
  annotate->footer(
      "Examples:\n"
      "  ttrace annotate candidate --reference reference -o draft.yaml\n"
      "  ttrace annotate candidate --reference reference -a gpt.yaml -o draft.yaml\n"
      "  ttrace annotate candidate --lint gpt.yaml\n"
      "\n"
      "Each line of a draft says why it is there: `# certain` where only this placement puts the shards together to\n"
      "the reference's values, `# guess` where others would do, or none does. Read the guesses: a draft made from a\n"
      "wrong program must not be made to fit it.\n"
      "\n"
      "JSON: {\"schema\": \"ttrace-lint/1\", \"trace\", \"annotations\", \"messages\": [{\"check\": misfit | unplaced "
      "|\n"
      "unused-rule | ambiguous | absent-axis | uneven-split, \"mistake\": bool, \"line\" (null: none), \"text\"}]}\n"
      "\n"
      "Exit codes: 0 the draft is written, nothing to mend (--lint); 1 something to mend (--lint);\n"
      "2 could not look.");
  annotate->callback([options, &run_command] { run_command = [options] { return run(*options); }; });
}

}  // namespace ttrace::cli
