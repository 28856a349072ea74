// Parses and checks the text of a recorded mapping, whose grammar is in base/mapping.h. The writer and the reader of
// traces both use it, so that they accept the same texts.
#pragma once

#include <string>
#include <string_view>

#include "base/mapping.h"

namespace ttrace {

inline constexpr std::size_t kMaxMappingBytes = 64 << 10;
inline constexpr std::size_t kMaxMappingParts = 1024;  // axes, or slices: overlaps are sought pair by pair

// Throws InputError (`mapping: fragment: slices 2: ...`) for what the grammar does not have, and for parts
// that contradict each other: a slice outside `whole`, slices that overlap in what was recorded. Nothing
// may surround the JSON object, so that two texts never lie inside one another.
RecordedMapping parse_mapping(std::string_view text);

// Says why a tensor that was recorded with `shape` can't have `mapping`, and what was expected; empty where it can.
std::string objection_to_mapping(const RecordedMapping& mapping, const Shape& shape);

}  // namespace ttrace
