// `ttrace completion`: scripts by which shells complete commands, options and files, made of what CLI11 knows of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/commands.h"
#include "cli/misuse.h"
#include "host/shell_words.h"

namespace ttrace::cli {
namespace {

using Options = std::vector<const CLI::Option*>;

Options named_options_of(const CLI::App& command) {
  const auto is_shown = [](const CLI::Option* option) {
    return !option->get_positional() && !option->get_group().empty();
  };
  return command.get_options(is_shown);
}

// The argument of the command that is one of several words, and comes first; null: it has none.
const CLI::Option* first_argument_of(const CLI::App& command) {
  const Options arguments = command.get_options(
      [](const CLI::Option* option) { return option->get_positional() && !option->nonpositional(); });
  return !arguments.empty() && !choices_of(*arguments[0]).empty() ? arguments[0] : nullptr;
}

bool takes_value(const CLI::Option& option) { return option.get_expected_max() != 0; }  // a flag takes none
bool takes_list(const CLI::Option& option) { return option.get_type_name() == "LIST"; }

// Returns the names with their dashes: `-a`, `--annotations`.
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

// Returns what comes before a semicolon: a completion has one line.
std::string short_description(const std::string& text) { return text.substr(0, text.find_first_of(";\n")); }

// %COMMANDS% stands for the commands, %CASES% for what each takes. Behind `--` another command is completed.
constexpr std::string_view kBash = R"sh(# bash: eval "$(ttrace completion bash)"
_ttrace() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words= i
  COMPREPLY=()
  # `--color=never` comes as three words.
  if [[ $word == = ]]; then word=; elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      declare -F _command_offset > /dev/null && _command_offset $((i + 1))
      return
    fi
  done
  if ((COMP_CWORD == 1)) || [[ ${COMP_WORDS[1]} == help ]]; then
    COMPREPLY=($(compgen -W '%COMMANDS%' -- "$word"))
    return
  fi
  case ${COMP_WORDS[1]} in
%CASES%  esac
  local front=${word%"${word##*,}"}  # of a list: what stands there already
  case ${COMP_WORDS[1]}:$before in
%VALUES%  esac
  [[ $word != -* ]] || COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _ttrace ttrace
)sh";

constexpr std::string_view kZsh = R"sh(#compdef ttrace
# zsh: eval "$(ttrace completion zsh)", after compinit
_ttrace_commands() {
  local commands=(
%COMMANDS%  )
  _describe command commands
}
_ttrace() {
  if ((CURRENT == 2)); then
    _ttrace_commands
    return
  fi
  local command=${words[2]}
  shift words
  ((CURRENT--))
  case $command in
%CASES%  esac
}
compdef _ttrace ttrace
)sh";

std::string filled(std::string_view script, const std::string& commands, const std::string& cases) {
  const std::string with_commands = CLI::detail::find_and_replace(std::string(script), "%COMMANDS%", commands);
  return CLI::detail::find_and_replace(with_commands, "%CASES%", cases);
}

// Has a case for each word behind which values are known: files are completed where none of them fits.
std::string bash_cases_of_values(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* command : app.get_subcommands({})) {
    for (const CLI::Option* option : named_options_of(*command)) {
      const std::vector<std::string> values = choices_of(*option);
      if (values.empty()) continue;
      const char* const word = takes_list(*option) ? "-P \"$front\" -- \"${word##*,}\"" : "-- \"$word\"";
      for (const std::string& name : names_of(*option)) {
        cases += fmt::format("    {}:{}) COMPREPLY=($(compgen -W '{}' {})); return ;;\n", command->get_name(), name,
                             fmt::join(values, " "), word);
      }
    }
    if (const CLI::Option* argument = first_argument_of(*command)) {
      cases += fmt::format("    {0}:{0}) COMPREPLY=($(compgen -W '{1}' -- \"$word\")) ;;\n", command->get_name(),
                           fmt::join(choices_of(*argument), " "));
    }
  }
  return cases;
}

std::string bash_script(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* command : app.get_subcommands({})) {
    std::vector<std::string> words;
    for (const CLI::Option* option : named_options_of(*command)) {
      for (std::string& name : names_of(*option)) words.push_back(std::move(name));
    }
    cases += fmt::format("    {}) words='{}' ;;\n", command->get_name(), fmt::join(words, " "));
  }
  const std::string script = filled(kBash, fmt::format("{}", fmt::join(commands_of(app), " ")), cases);
  return CLI::detail::find_and_replace(script, "%VALUES%", bash_cases_of_values(app));
}

// Makes the text fit to stand between single quotes, with what a specification of _arguments or _describe gives a
// meaning escaped.
std::string for_zsh(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == ':' || c == '[' || c == ']') escaped += '\\';
    escaped += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return escaped;
}

// Says how the option's value is completed.
std::string zsh_value_of(const CLI::Option& option) {
  if (!takes_value(option)) return "";
  const std::vector<std::string> values = choices_of(option);
  if (values.empty()) return ":value:_files";
  if (takes_list(option)) return fmt::format(":value:_sequence compadd - {}", fmt::join(values, " "));
  const std::string words = fmt::format("({})", fmt::join(values, " "));
  return fmt::format(":value:{{_alternative \"words:word:{}\" \"files:file:_files\"}}", words);
}

std::string zsh_script(const CLI::App& app) {
  std::string commands, cases;
  for (const CLI::App* command : app.get_subcommands({})) {
    commands += fmt::format("    '{}:{}'\n", command->get_name(), for_zsh(command->get_description()));
    cases += fmt::format("    {}) _arguments -S", command->get_name());
    for (const CLI::Option* option : named_options_of(*command)) {
      for (std::string& name : names_of(*option)) {
        if (takes_value(*option) && name.starts_with("--")) name += '=';  // it may stand before the value
        cases += fmt::format(" \\\n      '{}[{}]{}'", name, for_zsh(short_description(option->get_description())),
                             zsh_value_of(*option));
      }
    }
    if (const CLI::Option* argument = first_argument_of(*command)) {
      cases += fmt::format(" \\\n      '1:{}:({})'", argument->get_name(true), fmt::join(choices_of(*argument), " "));
    }
    const bool is_help = command->get_name() == "help";
    cases += fmt::format(" \\\n      '{}' ;;\n", is_help ? "1:command:_ttrace_commands" : "*:file:_files");
  }
  return filled(kZsh, commands, cases);
}

std::string fish_script(const CLI::App& app) {
  std::string text = "# fish: ttrace completion fish | source\n";
  for (const CLI::App* command : app.get_subcommands({})) {
    text += fmt::format("complete -c ttrace -n __fish_use_subcommand -f -a {} -d {}\n", command->get_name(),
                        shell_word(command->get_description()));
    for (const CLI::Option* option : named_options_of(*command)) {
      text += fmt::format("complete -c ttrace -n '__fish_seen_subcommand_from {}'", command->get_name());
      for (const std::string& name : option->get_snames()) text += " -s " + name;
      for (const std::string& name : option->get_lnames()) text += " -l " + name;
      const std::vector<std::string> values = choices_of(*option);
      const char* const list = takes_list(*option) ? "(__fish_complete_list , \"printf %s\\\\n {}\")" : "{}";
      if (!values.empty()) text += fmt::format(" -a '{}'", fmt::format(fmt::runtime(list), fmt::join(values, " ")));
      text += fmt::format("{} -d {}\n", takes_value(*option) ? " -r" : "",
                          shell_word(short_description(option->get_description())));
    }
    if (const CLI::Option* argument = first_argument_of(*command)) {
      text += fmt::format("complete -c ttrace -n '__fish_seen_subcommand_from {}' -a '{}'\n", command->get_name(),
                          fmt::join(choices_of(*argument), " "));
    }
  }
  return text + fmt::format("complete -c ttrace -n '__fish_seen_subcommand_from help' -f -a '{}'\n",
                            fmt::join(commands_of(app), " "));
}

std::vector<std::string> shells() { return {"bash", "zsh", "fish"}; }

}  // namespace

void add_completion(CLI::App& app, Run& run_command) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* completion = app.add_subcommand("completion", "Print a shell's completion script");
  add_option(*completion,
             {.names = "SHELL", .type = "", .help = "bash, zsh or fish", .choices = shells, .required = true}, *shell);
  completion->footer(R"sh(Examples:
  ttrace completion fish | source        # in ~/.config/fish/config.fish
  eval "$(ttrace completion bash)"       # in ~/.bashrc
  eval "$(ttrace completion zsh)"        # in ~/.zshrc, after compinit

Exit codes: 0 printed, 2 there is no such shell.)sh");
  completion->callback([&app, shell, &run_command] {
    run_command = [&app, shell] {
      const auto script = *shell == "bash" ? bash_script : *shell == "zsh" ? zsh_script : fish_script;
      ReportFiles().write([&] { return script(app); });
      return kExitSame;
    };
  });
}

}  // namespace ttrace::cli
