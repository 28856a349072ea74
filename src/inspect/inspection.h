// What `ttrace inspect` says of a trace, as text and as JSON. Writes to a stream, line by line: statistics
// of a large trace take their time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "ttrace/trace.h"

namespace ttrace {

struct RankSelection {
  const RankTrace* rank = nullptr;
  std::vector<const Entry*> entries;  // in execution order
};

// The tensors whose name matches `pattern` (as in annotations), of every rank; all for an empty pattern.
// Throws InputError when there is none.
std::vector<RankSelection> select_tensors(const Trace& trace, const std::string& pattern);

void print_summary(const Trace& trace, std::FILE* out);
void print_table(const std::vector<RankSelection>& selection, bool with_statistics, bool with_mappings, std::FILE* out);

struct Verification {
  std::int64_t tensors = 0, mismatches = 0;
  std::uint64_t bytes = 0;
};

// Reads every selected tensor, and calls `report` for each whose bytes are not those that were recorded.
Verification verify(const std::vector<RankSelection>& selection,
                    const std::function<void(const RankTrace&, const Entry&)>& report);

// The schema is in the help of `ttrace inspect`. Returns the number of mismatches; 0 unless `with_checksums`.
std::int64_t print_json(const Trace& trace, const std::vector<RankSelection>& selection, bool with_statistics,
                        bool with_checksums, std::FILE* out);

}  // namespace ttrace
