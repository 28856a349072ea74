#include "record/run_attributes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace ttrace {
namespace {

void require(bool holds, const std::string& message) {
  if (!holds) throw RecordError(RecordStatus::kInvalid, message);
}

void check_text(const std::string& text, std::string_view what) {
  require(text.size() <= kMaxAttributeBytes, fmt::format("{} has {} bytes; at most 1 MiB fits", what, text.size()));
  require(is_utf8(text), fmt::format("{} is not UTF-8", what));
}

void check_coordinates(const RunDescription& run) {
  std::int64_t ranks = 1;
  for (const Axis& axis : run.mesh.axes) {
    const auto coordinate = run.coordinates.find(axis.name);
    require(coordinate != run.coordinates.end(), fmt::format("coordinate of axis '{}' is missing", axis.name));
    require(coordinate->second >= 0 && coordinate->second < axis.size,
            fmt::format("coordinate {}={} is outside the axis, whose size is {}", axis.name, coordinate->second,
                        axis.size));
    require(axis.size >= 1 && axis.size <= run.world_size, fmt::format("axis '{}' has size {}", axis.name, axis.size));
    ranks *= axis.size;
    require(ranks <= run.world_size,
            fmt::format("the axes '{}' make more than {} ranks", to_string(run.mesh), run.world_size));
  }
  require(ranks == run.world_size,
          fmt::format("the axes '{}' make {} ranks; the run has {}", to_string(run.mesh), ranks, run.world_size));
  require(run.coordinates.size() == run.mesh.axes.size(), "a coordinate is given for an axis that does not exist");
}

void check(const RunDescription& run) {
  require(!run.run_id.empty(), "run id is empty");
  check_text(run.run_id, "run id");
  require(run.world_size >= 1 && run.world_size <= kMaxWorldSize,
          fmt::format("world size is {}; expected 1 to {}", run.world_size, kMaxWorldSize));
  require(run.rank >= 0 && run.rank < run.world_size,
          fmt::format("rank is {}; expected 0 to {}", run.rank, run.world_size - 1));
  check_coordinates(run);
  require(run.compute_dtype.empty() || dtype_from_name(run.compute_dtype),
          fmt::format("compute dtype '{}' is none; expected a name as bfloat16", run.compute_dtype));
  check_text(run.provenance, "provenance");
  require(nlohmann::json::parse(run.provenance, nullptr, /*allow_exceptions=*/false).is_object(),
          "provenance is not a JSON object");
}

}  // namespace

RunAttributes attributes_of(const RunDescription& run) {
  check(run);
  nlohmann::json axes = nlohmann::json::array();
  for (const Axis& axis : run.mesh.axes) axes.push_back({axis.name, axis.size});
  nlohmann::json aliases(run.mesh.aliases), coordinates(run.coordinates);
  if (aliases.is_null()) aliases = nlohmann::json::object();
  if (coordinates.is_null()) coordinates = nlohmann::json::object();
  RunAttributes attributes{kTraceVersion,  run.run_id,         run.world_size,    run.rank,      axes.dump(),
                           aliases.dump(), coordinates.dump(), run.compute_dtype, run.provenance};
  check_text(attributes.axes, "list of axes");
  check_text(attributes.aliases, "list of aliases");
  return attributes;
}

}  // namespace ttrace
