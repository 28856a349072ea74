#include "workflow/software.h"

#include <nlohmann/json.hpp>

#include "ttrace/load/trace_reader.h"

namespace ttrace {

std::optional<SoftwareDifference> software_difference(const std::filesystem::path& reference,
                                                      const std::filesystem::path& run) {
  const auto of_reference = nlohmann::json::parse(read_trace(reference).provenance, nullptr, false);
  const auto of_run = nlohmann::json::parse(read_trace(run).provenance, nullptr, false);
  if (!of_reference.is_object() || !of_run.is_object()) return std::nullopt;
  for (const char* name : {"python", "torch"}) {
    const auto one = of_reference.value(name, nlohmann::json()), other = of_run.value(name, nlohmann::json());
    if (!one.is_null() && !other.is_null() && one != other) return SoftwareDifference{name, one.dump(), other.dump()};
  }
  return std::nullopt;
}

}  // namespace ttrace
