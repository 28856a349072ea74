#include "identify/input_names.h"

#include "base/tensor_name.h"

namespace ttrace {

std::string name_of_input(const std::string& name, Kind kind, const ModelLayout& layout) {
  constexpr std::string_view kFirst = ":0";
  const TensorName parts(name);
  if ((kind != Kind::kInput && kind != Kind::kGradInput) || !(parts.member.empty() || parts.member == kFirst)) {
    return name;
  }
  const auto has = [&](const std::string& input) { return layout.shapes.contains({input, Kind::kInput}); };
  std::string other = parts.with_member(parts.member.empty() ? kFirst : "");
  return has(other) && !has(name) ? other : name;
}

}  // namespace ttrace
