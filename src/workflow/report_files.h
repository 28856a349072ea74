// Writes a command's report: text to stdout, and files for other programs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/outcome.h"
#include "host/replaced_file.h"
#include "page/html.h"
#include "report/junit.h"
#include "report/render.h"

namespace ttrace {

class ReportFiles {
 public:
  ReportFiles() = default;
  ReportFiles(ReportFiles&&) = default;
  ReportFiles& operator=(ReportFiles&&) = delete;
  // Removes the reports of earlier commands where this one could not look: nobody takes them for its own.
  ~ReportFiles();

  // Adds a file, `path` being the value of the option: `-` is stdout, in place of the text, and empty adds nothing. The
  // user learns now, before anything is read, of a path that cannot be written; what is there stays until the new report
  // is whole. Throws InputError, also for a second report that goes to the same file or to stdout.
  void add(std::string_view option, const std::string& path, std::function<std::string()> render);

  // Adds what is written to stdout behind the text. Throws InputError where a report goes there in its place.
  void add_behind_text(std::string_view option, std::function<std::string()> render);

  // Writes all files, each whole or not at all. Throws InputError where one cannot be written.
  void write(const std::function<std::string()>& text);

 private:
  struct File {
    std::string option, path;
    std::function<std::string()> render;
    std::optional<ReplacedFile> file;  // none: stdout
  };
  void open(File& file);

  std::vector<File> files_;
  std::string on_stdout_;  // the option whose report goes there
  std::string option_behind_text_;
  std::function<std::string()> behind_text_;
};

// The options by which `check` and `abft` write a Report.
struct ReportOptions {
  std::string json, junit, csv, html, sarif;
  bool github = false;
  bool all = false;
};

// Returns what a JUnit suite says beside the report: what a page does, and the text.
SuiteFacts suite_facts(const Report& report, const PageFacts& page);

// Returns what the user and the terminal want of a text on stdout.
TextOptions text_options();

// Opens the files of `options`. `report` and `page` must live until they are written.
ReportFiles report_files(const ReportOptions& options, const Report& report, const PageFacts& page);
void write_report(ReportFiles& files, const ReportOptions& options, const Report& report);

}  // namespace ttrace
