// Text from traces, made fit for people's eyes.
#pragma once

#include <string>
#include <string_view>

namespace ttrace {

// Valid UTF-8 for a terminal or an XML file: control characters, bytes that are no UTF-8 and code points
// that XML forbids become `\xNN`, byte by byte. Text without any comes back as it is.
std::string printable(std::string_view text);

}  // namespace ttrace
