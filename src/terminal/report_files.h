// Where a command's report goes: text on stdout, and files for other programs.
#pragma once

#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ttrace/outcome.h"

namespace ttrace {

class ReportFiles {
 public:
  // `path` is what the option says: `-` is stdout, in place of the text; empty is nowhere. The file is opened now,
  // before anything is read: a path that cannot be written is said at once, and a command that could not look leaves no
  // report of an earlier one behind. Throws InputError, also for a second one that goes to stdout.
  void add(std::string_view option, const std::string& path, std::function<std::string()> render);

  // Writes all of them. Throws InputError where one does not fit.
  void write(const std::function<std::string()>& text);

 private:
  struct File {
    std::string option, path;
    std::function<std::string()> render;
    std::ofstream stream;
  };
  std::vector<File> files_;
  std::string on_stdout_;  // the option whose report goes there
};

// What `check` and `abft` write of a Report.
struct ReportOptions {
  std::string json, junit, csv;
  bool all = false;
};

// Opens the files of `options`; `report` is read when they are written.
ReportFiles report_files(const ReportOptions& options, const Report& report);
void write_report(ReportFiles& files, const ReportOptions& options, const Report& report);

}  // namespace ttrace
