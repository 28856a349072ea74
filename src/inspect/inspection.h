// Prints a trace for `ttrace inspect`, as text and as JSON. Tables go to the stream line by line, since the statistics
// of a large trace take time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/trace.h"

namespace ttrace {

struct RankSelection {
  const RankTrace* rank = nullptr;
  std::vector<const Entry*> entries;  // in execution order
};

// Selects, on every rank, the tensors whose name matches `pattern` (as in annotations), or all if it is empty. Throws
// InputError when a pattern matches none.
std::vector<RankSelection> select_tensors(const Trace& trace, const std::string& pattern);

void print_summary(const Trace& trace, std::FILE* out);
void print_table(const std::vector<RankSelection>& selection, bool with_statistics, bool with_mappings, std::FILE* out);

struct ChecksumCounts {
  std::int64_t tensors = 0, mismatches = 0;
  std::uint64_t bytes = 0;
};

// Reads every selected tensor, and calls `report` for each whose bytes do not have the recorded checksum.
ChecksumCounts verify_checksums(const std::vector<RankSelection>& selection,
                                const std::function<void(const RankTrace&, const Entry&)>& report);

// Prints the selection as JSON, whose schema is in the help of `ttrace inspect`. Returns the number of mismatches; 0
// unless `with_checksums`.
std::int64_t print_json(const Trace& trace, const std::vector<RankSelection>& selection, bool with_statistics,
                        bool with_checksums, std::FILE* out);

}  // namespace ttrace
