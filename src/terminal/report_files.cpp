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

ReportFiles report_files(const ReportOptions& options, const Report& report, const PageFacts& page) {
  ReportFiles files;
  files.add("--json", options.json, [&report] { return to_json(report); });
  files.add("--junit", options.junit, [&report] { return to_junit(report); });
  files.add("--csv", options.csv, [&report] { return to_csv(report); });
  files.add("--html", options.html, [&] { return to_html(report, page); });
  return files;
}

void write_report(ReportFiles& files, const ReportOptions& options, const Report& report) {
  files.write([&] { return to_text(report, options.all ? report.findings.size() : kFindingsShown); });
}

}  // namespace ttrace
