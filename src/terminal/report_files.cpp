#include "terminal/report_files.h"

#include <fmt/format.h>

#include <iostream>

#include "terminal/write_file.h"
#include "ttrace/error.h"
#include "ttrace/report/render.h"

namespace ttrace {

void ReportFiles::add(std::string_view option, const std::string& path, std::function<std::string()> render) {
  if (path.empty()) return;
  File& file = files_.emplace_back(File{std::string(option), path, std::move(render), {}});
  if (path == "-") {
    if (!on_stdout_.empty()) {
      throw InputError(fmt::format("{}, {}: both go to stdout; expected one", on_stdout_, option));
    }
    on_stdout_ = option;
    return;
  }
  file.stream.open(path, std::ios::binary | std::ios::trunc);
  write_text(file.stream, path, "");
}

void ReportFiles::write(const std::function<std::string()>& text) {
  if (on_stdout_.empty()) std::cout << text() << std::flush;
  for (File& file : files_) {
    if (file.path != "-") write_text(file.stream, file.path, file.render());
    if (file.path == "-") std::cout << file.render() << std::flush;
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
  facts.text = to_text(report, kFindingsShown);
  return facts;
}

ReportFiles report_files(const ReportOptions& options, const Report& report, const PageFacts& page) {
  ReportFiles files;
  files.add("--json", options.json, [&report] { return to_json(report); });
  files.add("--junit", options.junit, [&] { return to_junit(report, suite_facts(report, page)); });
  files.add("--csv", options.csv, [&report] { return to_csv(report); });
  files.add("--html", options.html, [&] { return to_html(report, page); });
  return files;
}

void write_report(ReportFiles& files, const ReportOptions& options, const Report& report) {
  files.write([&] { return to_text(report, options.all ? report.findings.size() : kFindingsShown); });
}

}  // namespace ttrace
