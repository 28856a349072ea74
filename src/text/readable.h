// Formats numbers for people to read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

std::string readable_bytes(std::uint64_t bytes);  // "23.4 MiB"
std::string readable_count(std::uint64_t count);  // "3,912"
std::string readable_seconds(double seconds);     // "9 s", "1:35 min", "2:05 h"; rounded up

// Shortens a sorted list of numbers: `0-3,8`, with dots where it has more than four ranges.
std::string short_list(const std::vector<std::int64_t>& sorted);

}  // namespace ttrace
