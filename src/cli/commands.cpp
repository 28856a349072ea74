#include "cli/commands.h"

namespace ttrace::cli {

void add_report_options(CLI::App& command, ReportOptions& options) {
  command.add_option("--json", options.json, "Write the report as JSON to this file (-: stdout, instead of the text)");
  command.add_option("--junit", options.junit, "Write the report as JUnit XML to this file (-: stdout)");
  command.add_option("--csv", options.csv, "Write a line for every tensor that was looked at to this file (-: stdout)");
  command.add_flag("--all", options.all, "Print all findings, not just the first ten");
}

}  // namespace ttrace::cli
