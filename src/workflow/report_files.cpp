#include "workflow/report_files.h"

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <iostream>
#include <utility>

#include "base/error.h"
#include "host/terminal.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

bool is_same_file(const fs::path& one, const fs::path& other) {
  std::error_code ignored;
  return fs::weakly_canonical(one, ignored) == fs::weakly_canonical(other, ignored) ||
         fs::equivalent(one, other, ignored);
}

InputError both_on_stdout(std::string_view one, std::string_view other) {
  return InputError(fmt::format("{}, {}: both go to stdout; expected one", one, other));
}

}  // namespace

ReportFiles::~ReportFiles() {
  if (std::uncaught_exceptions() == 0) return;
  for (const File& each : files_) {
    std::error_code ignored;
    if (each.file && !each.file->is_in_place()) std::filesystem::remove(each.file->path(), ignored);
  }
}

void ReportFiles::add(std::string_view option, const std::string& path, std::function<std::string()> render) {
  if (path.empty()) return;
  File file{std::string(option), path, std::move(render), std::nullopt};
  try {
    open(file);
  } catch (...) {
    files_.clear();  // the command does not begin: all reports stay
    throw;
  }
  files_.push_back(std::move(file));
}

void ReportFiles::open(File& file) {
  if (file.path == "-") {
    for (const std::string& other : {on_stdout_, option_behind_text_}) {
      if (!other.empty()) throw both_on_stdout(other, file.option);
    }
    on_stdout_ = file.option;
    return;
  }
  file.file.emplace(file.path);
  for (const File& other : files_) {
    if (!other.file || file.file->is_in_place() || !is_same_file(other.file->path(), file.file->path())) continue;
    throw InputError(fmt::format("{}, {}: both go to {}; expected a file of its own for each", other.option,
                                 file.option, file.path));
  }
}

void ReportFiles::add_behind_text(std::string_view option, std::function<std::string()> render) {
  if (!on_stdout_.empty()) throw both_on_stdout(on_stdout_, option);
  option_behind_text_ = option;
  behind_text_ = std::move(render);
}

void ReportFiles::write(const std::function<std::string()>& text) {
  if (on_stdout_.empty()) std::cout << text() << (behind_text_ ? behind_text_() : "") << std::flush;
  std::vector<File> files = std::exchange(files_, {});  // what cannot be written leaves the others as they are
  for (File& each : files) {
    if (!each.file) {
      std::cout << each.render() << std::flush;
      continue;
    }
    each.file->write(each.render());
    each.file->finish();
  }
  if (!std::cout) throw InputError("stdout: cannot be written; expected a place for the report");
}

SuiteFacts suite_facts(const Report& report, const PageFacts& page) {
  SuiteFacts facts;
  const auto add = [&](std::string name, std::string value) {
    if (!value.empty()) facts.properties.emplace_back(std::move(name), std::move(value));
  };
  const auto add_run = [&](const std::string& side, const RunFacts& run) {
    add(side, run.directory);
    add(side + ".command", run.command);
    add(side + ".ranks", fmt::format("{}", run.world_size));
    add(side + ".axes", to_string(run.mesh));
    add(side + ".git_commit", run.git_commit);
    add(side + ".python", run.python);
    add(side + ".torch", run.torch);
    add(side + ".device", run.device);
    add(side + ".compute_dtype", run.compute_dtype);
  };
  if (page.reference) add_run("reference", *page.reference);
  if (page.candidate) add_run("candidate", *page.candidate);
  if (page.tolerance) {
    add("tolerance", page.tolerance->file);
    add("tolerance.estimator", page.tolerance->estimator);
    add("tolerance.margin", fmt::format("{}", page.tolerance->margin));
  }
  add("command", page.command);
  if (page.candidate) facts.timestamp = page.candidate->started;
  facts.follows_from = page.follows_from;
  facts.text = to_text(report, {kFindingsShown});
  return facts;
}

TextOptions text_options() {
  TextOptions options;
  if (terminal_options().verbose) options.findings = kFindingsShown;
  options.quiet = terminal_options().quiet;
  options.style = style_of_stdout();
  return options;
}

ReportFiles report_files(const ReportOptions& options, const Report& report, const PageFacts& page) {
  ReportFiles files;
  files.add("--json", options.json, [&report] { return to_json(report); });
  files.add("--junit", options.junit, [&] { return to_junit(report, suite_facts(report, page)); });
  files.add("--csv", options.csv, [&report] { return to_csv(report); });
  files.add("--html", options.html, [&] { return to_html(report, page); });
  files.add("--sarif", options.sarif, [&report] { return to_sarif(report); });
  if (options.github) files.add_behind_text("--github", [&report] { return to_github(report); });
  return files;
}

void write_report(ReportFiles& files, const ReportOptions& options, const Report& report) {
  TextOptions text = text_options();
  if (options.all) text.findings = report.findings.size();
  files.write([&] { return to_text(report, text); });
}

}  // namespace ttrace
