// The one place where text becomes YAML. The text is untrusted, and yaml-cpp is not made for that: a comma that begins
// a document keeps it busy for ever, and a few lines of aliases stand for as many values as one likes.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace ttrace {

// Returns the one document of the text, Null where there is none. Throws YAML::Exception for what is no YAML, for a
// second document, for NUL, and for aliases that make much of little.
YAML::Node parse_yaml(const std::string& text);

}  // namespace ttrace
