#include "cli/report_file.h"

#include <fmt/format.h>

#include <iostream>

#include "ttrace/error.h"

namespace ttrace::cli {

ReportFile::ReportFile(const std::string& path) : path_(path) {
  if (path_.empty() || is_stdout()) return;
  stream_.open(path_, std::ios::binary | std::ios::trunc);
  if (!stream_) fail();
}

void ReportFile::write(const std::function<std::string()>& render) {
  if (path_.empty()) return;
  std::ostream& stream = is_stdout() ? std::cout : stream_;
  stream << render() << std::flush;
  if (!stream) fail();
}

void ReportFile::fail() const { throw InputError(fmt::format("{}: cannot be written; expected a file", path_)); }

}  // namespace ttrace::cli
