#include "identify/member_names.h"

#include <fmt/format.h>

#include <optional>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

// The kind of what is handed over, of that or of its gradient; none of other tensors.
std::optional<Kind> handed_over(Kind kind) {
  if (kind == Kind::kInput || kind == Kind::kGradInput) return Kind::kInput;
  if (kind == Kind::kOutput || kind == Kind::kGradOutput) return Kind::kOutput;
  return std::nullopt;
}

}  // namespace

std::string name_of_member(const std::string& name, Kind kind, const ModelLayout& layout) {
  constexpr std::string_view kFirst = ":0";
  const TensorName parts(name);
  const std::optional<Kind> value = handed_over(kind);
  if (!value || !(parts.member.empty() || parts.member == kFirst)) return name;
  const auto has = [&](const std::string& member) { return layout.shapes.contains({member, *value}); };
  std::string other = parts.with_member(parts.member.empty() ? kFirst : "");
  return has(other) && !has(name) ? other : name;
}

TensorId id_in_reference(TensorId id, const ModelLayout& layout, bool are_stages) {
  if (!are_stages && id.chunk != 0) id.name = fmt::format("model{}.{}", id.chunk, id.name.get());
  id.chunk = 0;
  id.name = name_of_member(id.name, id.kind, layout);
  return id;
}

}  // namespace ttrace
