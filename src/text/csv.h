// How all our CSV is quoted.
#pragma once

#include <string>
#include <string_view>

namespace ttrace {

// A field of RFC 4180, quoted where it must be; control characters escaped, so that a row is a line.
std::string csv_field(std::string_view text);

}  // namespace ttrace
