// The text of a recorded mapping, whose grammar is in ttrace/mapping.h. Writer and reader agree on it.
#pragma once

#include <string>
#include <string_view>

#include "ttrace/mapping.h"

namespace ttrace {

inline constexpr std::size_t kMaxMappingBytes = 64 << 10;
inline constexpr std::size_t kMaxMappingParts = 1024;  // axes, or slices: overlaps are sought pair by pair

// Throws InputError (`mapping: fragment: slices 2: ...`) for what the grammar does not have, and for parts
// that contradict each other: a slice outside `whole`, slices that overlap in what was recorded. Nothing
// may surround the JSON object, so that two texts never lie inside one another.
RecordedMapping parse_mapping(std::string_view text);

// Why a tensor that was recorded with `shape` can't have `mapping`, with what was expected; or empty.
std::string objection_to_mapping(const RecordedMapping& mapping, const Shape& shape);

}  // namespace ttrace
