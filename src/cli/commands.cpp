#include "cli/commands.h"

#include <map>
#include <vector>

namespace ttrace::cli {

CLI::Option* add_reference_option(CLI::App& command, std::string& trace) {
  return command.add_option("--reference", trace, "Trace of the trusted run")->type_name("TRACE");
}

CLI::Option* add_candidate_option(CLI::App& command, std::string& trace) {
  return command.add_option("--candidate", trace, "Trace of the run under test")->type_name("TRACE");
}

CLI::Option* add_annotation_options(CLI::App& command, AnnotationSource& annotations) {
  CLI::Option* file =
      command.add_option("-a,--annotations", annotations.file,
                         "How the program places its tensors: a file (YAML), the name of a preset, or none");
  command.add_option("--set", annotations.settings, "Give a parameter of the annotations a value; repeatable")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  return file->type_name("FILE");
}

CLI::Option* add_axes_option(CLI::App& command, AnnotationSource& annotations) {
  return command
      .add_option("--axes", annotations.axes,
                  "Axes of the ranks, fastest first, as in tp=2,dp=2, where the trace does not say them")
      ->type_name("AXES");
}

CLI::Option* add_tolerance_option(CLI::App& command, std::string& file) {
  return command
      .add_option(
          "-t,--tolerance", file,
          "What each tensor may differ by, from `ttrace estimate-tolerance`; without, all must be equal; default: "
          "a closed form, not measured")
      ->type_name("FILE");
}

CLI::Option* add_accept_option(CLI::App& command, bool& accept) {
  return command.add_flag(
      "--accept-overrides", accept,
      "Take overrides of the tolerance file however much they allow, and what they excuse for proved");
}

CLI::Option* add_correspondence_option(CLI::App& command, std::string& correspondence) {
  return command
      .add_option("--correspondence", correspondence,
                  "The two are programs of their own: which tensor of one is which of the other (YAML), a file or one "
                  "that comes with ttrace")
      ->type_name("FILE");
}

CLI::Option* add_only_option(CLI::App& command, std::string& pattern) {
  return command.add_option("--only", pattern, "Only tensors whose name matches this glob or dotted suffix")
      ->type_name("PATTERN");
}

void add_choice_options(CLI::App& command, TensorChoice& choice) {
  std::vector<std::string> kinds;
  for (std::uint8_t kind = kKindFirst; kind <= kKindLast; ++kind) kinds.emplace_back(name_of(static_cast<Kind>(kind)));
  command
      .add_option_function<std::string>(
          "--kind", [&choice](const std::string& word) { choice.kind = kind_from_name(word); },
          "Only tensors of this kind: output, grad_input, param_grad, ...")
      ->check(CLI::IsMember(kinds))
      ->type_name("KIND");
  command.add_option("--iteration", choice.iteration, "Only tensors of this iteration")->type_name("N");
  command.add_option("--microbatch", choice.microbatch, "Only tensors of this micro-batch")->type_name("N");
}

CLI::Option* add_threads_option(CLI::App& command, int& threads) {
  return command.add_option("--threads", threads, "Number of threads [one a core]")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
}

CLI::Option* add_json_option(CLI::App& command, std::string& file) {
  return command.add_option("--json", file, "Write the report as JSON to this file (-: stdout, instead of the text)")
      ->type_name("FILE");
}

CLI::Option* add_html_option(CLI::App& command, std::string& file) {
  return command
      .add_option("--html", file, "Write the report as a page with pictures, one file for any browser (-: stdout)")
      ->type_name("FILE");
}

CLI::Option* add_sarif_option(CLI::App& command, std::string& file) {
  return command
      .add_option("--sarif", file, "Write the root causes as SARIF 2.1.0, for code scanning, to this file (-: stdout)")
      ->type_name("FILE");
}

CLI::Option* add_github_option(CLI::App& command, bool& github) {
  return command.add_flag("--github", github,
                          "Print the root causes as annotations of a GitHub workflow, too, at their lines");
}

void add_terminal_options(CLI::App& command, TerminalOptions& options) {
  const std::map<std::string, ColorChoice> choices = {
      {"auto", ColorChoice::kAuto}, {"always", ColorChoice::kAlways}, {"never", ColorChoice::kNever}};
  const char* const kGroup = "What the terminal shows";
  command
      .add_option_function<std::string>(
          "--color", [&options, choices](const std::string& word) { options.color = choices.at(word); },
          "auto, always or never [auto: on a terminal, unless NO_COLOR is set]")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN")
      ->group(kGroup);
  CLI::Option* quiet = command.add_flag("-q,--quiet", options.quiet, "Warnings and errors only; reports in one line");
  command.add_flag("-v,--verbose", options.verbose, "More, in reports the first ten findings")
      ->excludes(quiet)
      ->group(kGroup);
  quiet->group(kGroup);
}

CLI::Option* add_history_option(CLI::App& command, std::string& file) {
  return command.add_option("--history", file, "Add verdicts and ratios to this SQLite file, for `ttrace history`")
      ->type_name("FILE");
}

void add_report_options(CLI::App& command, ReportOptions& options) {
  add_json_option(command, options.json);
  command.add_option("--junit", options.junit, "Write the report as JUnit XML to this file (-: stdout)")
      ->type_name("FILE");
  command.add_option("--csv", options.csv, "Write a line for every tensor that was looked at to this file (-: stdout)")
      ->type_name("FILE");
  add_html_option(command, options.html);
  add_sarif_option(command, options.sarif);
  add_github_option(command, options.github);
  command.add_flag("--all", options.all, "Print all findings, not just a summary");
}

}  // namespace ttrace::cli
