// The seal of a tolerance file: one number for what was measured, so that a file whose samples, estimates and allowed
// values were changed to fit each other is not taken for a measured one. It has no key: whoever wants to can compute it
// anew. A file without one is somebody's own.
#pragma once

#include <string>
#include <string_view>

namespace ttrace {

inline constexpr std::string_view kSealKey = "seal:";
inline constexpr std::string_view kSealByKey = "seal_by_key:";  // workflow/keyed_seal.h

// 16 hexadecimal digits, a letter before them so that YAML takes them for a word: XXH3-64 over the lines of the file
// but empty ones, comments, `overrides` with what belongs to it, and the seals themselves. Blanks at the ends of lines do
// not count.
std::string seal_of(std::string_view text);

}  // namespace ttrace
