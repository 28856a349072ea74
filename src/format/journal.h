// The journal: what a rank has recorded so far, so that a crash costs nothing that record() returned for.
//
//   file    := record*
//   record  := length u32, checksum u64, payload[length]    XXH3-64 of the payload
//   payload := 'R', JSON object                             the run's attributes; the first record, and
//                                                           again when they are changed
//            | 'T', iteration i32, microbatch i32, chunk i32, pass u8, kind u8, dtype u8, ndim u8,
//              order u64, offset u64, bytes u64, checksum u64, shape i64[ndim]
//              (of a sketch, as in /ttrace/shapes: i64[2 ndim + 1]),
//              name_length u32, name, module_length u32, module class, mapping's text (the rest)
//
// Records are appended once their tensors' bytes are in the trace file, one or many with one write. A record that is
// cut off or has a wrong checksum ends the journal: it was being written when the rank died.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.h"
#include "format/format.h"

namespace ttrace {

std::string journal_record(const RunAttributes& run);
std::string journal_record(const Entry& entry, std::string_view mapping);

struct Journal {
  RunAttributes run;  // the last 'R'
  std::vector<Entry> entries;
  std::vector<std::string_view> mappings;  // by entry, the text of its mapping, empty for none; inside `bytes`
};

// Decodes the records without checking their values: enumerators may be out of range, and mappings are mere text.
// Returns nothing when the first record is not a readable 'R'.
std::optional<Journal> parse_journal(std::string_view bytes);

}  // namespace ttrace
