#include "base/configuration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/tensor_name.h"
#include "base/trace.h"

namespace ttrace {

const ModuleConfiguration* ModuleConfigurations::of(std::int32_t chunk, const std::string& module) const {
  if (chunk < 0 || static_cast<std::size_t>(chunk) >= chunks.size()) return nullptr;
  const auto& modules = chunks[static_cast<std::size_t>(chunk)];
  auto found = modules.find(module);
  if (found == modules.end()) found = modules.find(without_numbers(module));
  return found == modules.end() ? nullptr : found->second.get();
}

std::string text_of(const OtherAttribute& other) {
  const std::string on = other.ranks.empty() ? ""
                                             : fmt::format(" on rank{} {}", other.ranks.size() == 1 ? "" : "s",
                                                           fmt::join(other.ranks, ", "));
  return printable(fmt::format("{} {}{}, reference {}", other.attribute, other.candidate, on, other.reference));
}

std::string text_of(const OtherSurrounding& other) {
  const auto shown = [](const std::string& value) { return value.empty() ? "none" : value; };
  return printable(fmt::format("{} {}, reference {}", other.what, shown(other.candidate), shown(other.reference)));
}

}  // namespace ttrace
