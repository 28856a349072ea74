// Looks at JSON before anything is made of it. (A callback of nlohmann's parser sees as much, but the parser then walks
// through all of a list at the end of each object in it.)
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ttrace {

struct JsonInspection {
  bool is_valid = false;             // else the others are of what comes before the mistake
  int deepest = 0;                   // objects and lists inside one another
  std::optional<std::string> twice;  // a key that an object has twice: a parser would keep one of the two
};

JsonInspection inspect_json(std::string_view text);

}  // namespace ttrace
