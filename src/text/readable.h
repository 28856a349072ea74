// Formats numbers for people to read.
#pragma once

#include <cstdint>
#include <string>

namespace ttrace {

std::string readable_bytes(std::uint64_t bytes);  // "23.4 MiB"
std::string readable_count(std::uint64_t count);  // "3,912"

}  // namespace ttrace
