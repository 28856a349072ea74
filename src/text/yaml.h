// Words as YAML. Names come from traces and may hold anything that is UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ttrace {

// Quotes the text where YAML could take it for something else than a word.
std::string yaml_word(std::string_view text);

// A key of a mapping with the colon behind it; `indent` are the blanks before it. A long key takes two lines: YAML
// looks for the colon in 1024 characters only.
std::string yaml_key(std::string_view text, std::size_t indent);

}  // namespace ttrace
