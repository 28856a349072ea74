// A report for other programs.
#pragma once

#include <fstream>
#include <functional>
#include <string>

namespace ttrace::cli {

// Opened before anything is read: a path that cannot be written is said at once, and a check that could not look leaves
// no report of an earlier one behind. `-` is stdout, empty is nowhere. Throws InputError.
class ReportFile {
 public:
  explicit ReportFile(const std::string& path);
  bool is_stdout() const { return path_ == "-"; }
  void write(const std::function<std::string()>& render);

 private:
  [[noreturn]] void fail() const;

  std::string path_;
  std::ofstream stream_;
};

}  // namespace ttrace::cli
