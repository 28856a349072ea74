// Traces that no writer would make, to show the reader.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "format/format.h"
#include "support/temporary_directory.h"

namespace ttrace::test {

std::string contents(const std::filesystem::path& path);
void replace_contents(const std::filesystem::path& path, std::string_view bytes);

// Returns what the reader says of the trace, with the directory's name taken out; empty when the trace is read.
std::string error_of(const std::filesystem::path& directory);

// A trace of one rank with any index, sealed as the writer would.
struct ForgedTrace {
  TemporaryDirectory directory;
  RunAttributes run{1, "run-1", 1, 0, "[]", "{}", "{}", "", "{}"};
  Index index;
  std::uint64_t data_end = kHeaderBytes + 256;

  // A tensor "t<n>" of four fp32 elements at its own place, to be made wrong.
  IndexRow& add();
  std::string error();  // writes the trace, and `error_of` it
};

}  // namespace ttrace::test
