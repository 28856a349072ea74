// `ttrace help`: how is a command used? The help pages of all commands have their form here.
#include <memory>
#include <sstream>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/misuse.h"
#include "text/wrap.h"
#include "workflow/report_files.h"

namespace ttrace::cli {
namespace {

constexpr std::size_t kColumns = 80, kDescriptionsFrom = 26;

// CLI11's pages with wrapped descriptions; what is required, and what holds by default, is said at their end.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() {
    column_width(kDescriptionsFrom);
    label("SUBCOMMAND", "COMMAND");
    label("Positionals", "Arguments");
  }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    // CLI11 leaves two empty lines between groups of options.
    return CLI::detail::find_and_replace(Formatter::make_help(app, name, mode), "\n\n\n", "\n\n");
  }

  std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode) const override {
    std::ostringstream text;
    for (const CLI::App* command : app->get_subcommands({})) {
      const std::string description = wrapped(command->get_description(), kColumns - kDescriptionsFrom);
      CLI::detail::format_help(text, command->get_name(), description, kDescriptionsFrom);
    }
    return text.str().empty() ? "" : "\nCommands:\n" + text.str();
  }

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    return CLI::detail::find_and_replace(Formatter::make_option_name(option, is_positional), "{false}", "");
  }

  std::string make_option_usage(const CLI::Option* option) const override {
    return CLI::detail::find_and_replace(Formatter::make_option_usage(option), "(0x)", "...");  // none, or some
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_positional() || option->get_type_size() == 0) return "";
    const std::string type = option->get_type_name();
    const bool takes_many = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    return " " + type.substr(0, type.find(':')) + (takes_many ? " ..." : "");  // behind a colon: what is valid
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    if (option->get_required() && !option->get_positional()) text += " (required)";
    if (!option->get_default_str().empty()) text += " [" + option->get_default_str() + "]";
    return wrapped(text, kColumns - kDescriptionsFrom);
  }
};

// Returns the help of `command`, or of `app` itself where no command is named.
std::string help_of(const CLI::App& app, const std::string& command) {
  const std::string& program = app.get_name();
  // Not app.help(): that is the page of the command which was given, `help`.
  if (command.empty()) return app.get_formatter()->make_help(&app, program, CLI::AppFormatMode::Normal);
  const auto found = app.get_subcommands([&](const CLI::App* other) { return other->get_name() == command; });
  if (found.empty()) throw InputError(describe_unknown(app, app, command));
  return found.front()->help(program);
}

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

void add_help(CLI::App& app, Run& run_command) {
  const auto name = std::make_shared<std::string>();
  CLI::App* help = app.add_subcommand("help", "Show how a command is used, as its --help does");
  help->add_option("COMMAND", *name, "One of the commands; without, they are listed");
  help->footer(R"(Examples:
  ttrace help
  ttrace help check

Exit codes: 0 shown, 2 there is no such command.)");
  help->callback([&app, name, &run_command] {
    run_command = [&app, name] {
      ReportFiles().write([&] { return help_of(app, *name); });
      return kExitSame;
    };
  });
}

}  // namespace ttrace::cli
