// Checks an index against its file: a reader relies on nothing that was not checked.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// Requires of every entry what `Entry` promises: enumerators in range, shape and bytes that agree,
// data inside [kHeaderBytes, data_end), aligned, disjoint or shared, in all at most kMaxSharing * data_end
// bytes; names are sound, identities differ, order increases. Throws InputError (`where` is the file) for the first
// that lacks it.
void check_entries(const std::vector<Entry>& entries, std::uint64_t data_end, std::string_view where);

// Checks what of it depends on checksums: tensors lie apart, or have all of their bytes and their checksum in common.
void check_disjoint(const std::vector<Entry>& entries, std::string_view where);

}  // namespace ttrace
