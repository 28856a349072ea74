#include "cli/commands.h"

#include <map>
#include <string_view>
#include <vector>

namespace ttrace::cli {

namespace {

using ChoicesOfOptions = std::map<const CLI::Option*, std::vector<std::string> (*)()>;

ChoicesOfOptions& registered_choices() {
  static ChoicesOfOptions choices;
  return choices;
}

// A name that is empty is that of a variable that is not set, and not of an option that was left out.
CLI::Validator not_empty() {
  return CLI::Validator([](const std::string& text) { return text.empty() ? "an empty name" : ""; }, "");
}

std::vector<std::string> colors() { return {"auto", "always", "never"}; }

}  // namespace

std::vector<std::string> choices_of(const CLI::Option& option) {
  const auto found = registered_choices().find(&option);
  return found == registered_choices().end() ? std::vector<std::string>{} : found->second();
}

namespace detail {

CLI::Option* finish_option(CLI::App& command, const Option& option, CLI::Option* registered,
                           const std::vector<std::string>& defaults) {
  if (*option.type != '\0') registered->type_name(option.type);
  if (option.required) registered->required();
  if (option.hidden) registered->group("");
  if (!option.hidden && *option.group != '\0') registered->group(option.group);
  if (*option.needs != '\0') registered->needs(command.get_option(option.needs));
  if (option.shows_default && !defaults.empty()) registered->default_str(defaults.front());
  const std::string_view type = option.type;
  if (type == "FILE" || type == "TRACE" || type == "DIR") registered->check(not_empty());
  if (option.number == Number::kPositive) registered->check(CLI::PositiveNumber);
  if (option.number == Number::kNotNegative) registered->check(CLI::NonNegativeNumber);
  if (option.number == Number::kThreads) registered->check(CLI::Range(1, 4096));
  if (option.choices == nullptr) return registered;
  registered_choices()[registered] = option.choices;
  if (option.only_choices) registered->check(CLI::IsMember(option.choices()));
  return registered;
}

}  // namespace detail

CLI::Option* add_annotation_options(CLI::App& command, AnnotationSource& annotations) {
  CLI::Option* file = add_option(command, option::kAnnotations, annotations.file);
  add_option(command, option::kSet, annotations.settings);
  return file;
}

void add_choice_options(CLI::App& command, TensorChoice& choice) {
  CLI::Option* kind = command.add_option_function<std::string>(
      "--kind", [&choice](const std::string& word) { choice.kind = kind_from_name(word); },
      "Only tensors of this kind: output, grad_input, param_grad, ...");
  detail::finish_option(command, {.names = "--kind", .type = "KIND", .help = "", .choices = choices::kinds}, kind, {});
  command.add_option("--iteration", choice.iteration, "Only tensors of this iteration")->type_name("N");
  command.add_option("--microbatch", choice.microbatch, "Only tensors of this micro-batch")->type_name("N");
}

void add_terminal_options(CLI::App& command, TerminalOptions& options) {
  const std::map<std::string, ColorChoice> choices = {
      {"auto", ColorChoice::kAuto}, {"always", ColorChoice::kAlways}, {"never", ColorChoice::kNever}};
  const char* const kGroup = "What the terminal shows";
  CLI::Option* color = command.add_option_function<std::string>(
      "--color", [&options, choices](const std::string& word) { options.color = choices.at(word); },
      "auto, always or never [auto: on a terminal, unless NO_COLOR is set]");
  detail::finish_option(command, {.names = "--color", .type = "WHEN", .help = "", .group = kGroup, .choices = colors},
                        color, {});
  CLI::Option* quiet = command.add_flag("-q,--quiet", options.quiet, "Warnings and errors only; reports in one line");
  command.add_flag("-v,--verbose", options.verbose, "More, in reports the first ten findings")
      ->excludes(quiet)
      ->group(kGroup);
  quiet->group(kGroup);
}

}  // namespace ttrace::cli
