// Quotes the fields of every CSV file that ttrace writes.
#pragma once

#include <string>
#include <string_view>

namespace ttrace {

// Returns `text` as a field of RFC 4180, quoted if it must be. Control characters are escaped, so that a row is one
// line.
std::string csv_field(std::string_view text);

}  // namespace ttrace
