#include "format/run_attributes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/error.h"
#include "format/json_inspection.h"

namespace ttrace {
namespace {

constexpr int kMaxJsonDepth = 64;  // programs that print JSON recurse

std::string objection_to_text(const std::string& text, std::string_view what) {
  if (text.size() > kMaxAttributeBytes) {
    return fmt::format("{} has {} bytes; expected at most 1 MiB", what, text.size());
  }
  if (!is_utf8(text)) return fmt::format("{} is not text; expected UTF-8", what);
  return {};
}

// The names in a file may hold anything: the mesh is sound when its text parses, as a user's would, to the same mesh.
// A mesh without axes is one that nobody knew.
std::string objection_to_mesh(const RunDescription& run) {
  if (run.mesh == Mesh{}) return {};
  try {
    if (parse_mesh(to_string(run.mesh), run.world_size, "axes") == run.mesh) return {};
    return "axes: malformed; expected names of letters, digits and '_'";
  } catch (const InputError& error) {
    return error.what();
  }
}

std::string objection_to_coordinates(const RunDescription& run) {
  const Axes axes = all_axes(run.mesh);
  for (const Axis& axis : axes) {
    const auto coordinate = run.coordinates.find(axis.name);
    if (coordinate == run.coordinates.end()) {
      return fmt::format("coordinate of axis '{}' is missing; expected one per axis", axis.name);
    }
    if (coordinate->second < 0 || coordinate->second >= axis.size) {
      return fmt::format("coordinate {}={}; expected 0 to {}", axis.name, coordinate->second, axis.size - 1);
    }
  }
  if (run.coordinates.size() == axes.size()) return {};
  return fmt::format("{} coordinates; expected one for each of the axes '{}'", run.coordinates.size(),
                     to_string(run.mesh));
}

std::string objection_to_description(const RunDescription& run) {
  if (!run.compute_dtype.empty() && !dtype_from_name(run.compute_dtype)) {
    return "compute dtype is unknown; expected a name as bfloat16";
  }
  if (std::string objection = objection_to_text(run.provenance, "provenance"); !objection.empty()) return objection;
  const JsonInspection inspection = inspect_json(run.provenance);
  if (inspection.deepest > kMaxJsonDepth) {
    return fmt::format("provenance nests too deeply; expected at most {}", kMaxJsonDepth);
  }
  if (!inspection.is_valid || !nlohmann::json::parse(run.provenance).is_object()) {
    return "provenance does not parse; expected a JSON object";
  }
  return {};
}

// [["tp",2],["dp",2]]
nlohmann::json axes_json(const Axes& axes) {
  nlohmann::json json = nlohmann::json::array();
  for (const Axis& axis : axes) json.push_back({axis.name, axis.size});
  return json;
}

// The library's own conversion cuts numbers to fit: 4294967297 and 1.9 would be 1, and so would `true`.
template <typename Integer>
Integer integer_from(const nlohmann::json& json) {
  const bool fits = json.is_number_unsigned()
                        ? std::in_range<Integer>(json.get<std::uint64_t>())
                        : json.is_number_integer() && std::in_range<Integer>(json.get<std::int64_t>());
  if (!fits) throw std::out_of_range("no integer that fits");
  return json.get<Integer>();
}

Axes axes_from(const nlohmann::json& json) {
  Axes axes;
  for (const auto& [name, size] : json.get<std::vector<std::pair<std::string, nlohmann::json>>>()) {
    axes.push_back({name, integer_from<std::int64_t>(size)});
  }
  return axes;
}

// Parses what one attribute holds.
nlohmann::json parsed(const std::string& text) {
  if (text.size() > kMaxAttributeBytes) throw std::out_of_range("longer than 1 MiB");
  return nlohmann::json::parse(text);
}

}  // namespace

RunAttributes attributes_of(const RunDescription& run) {
  nlohmann::json views = nlohmann::json::array();
  nlohmann::json aliases = nlohmann::json::object();
  nlohmann::json coordinates = nlohmann::json::object();
  for (const Axes& factoring : run.mesh.further_factorings) views.push_back(axes_json(factoring));
  for (const auto& [name, axis] : run.mesh.aliases) aliases[name] = axis;
  for (const auto& [axis, coordinate] : run.coordinates) coordinates[axis] = coordinate;
  return {kTraceVersion,  run.run_id,         run.world_size,    run.rank,       axes_json(run.mesh.axes).dump(),
          aliases.dump(), coordinates.dump(), run.compute_dtype, run.provenance, views.dump()};
}

std::string to_json(const RunAttributes& attributes) {
  return nlohmann::json({{"ttrace_version", attributes.version},
                         {"run_id", attributes.run_id},
                         {"world_size", attributes.world_size},
                         {"rank", attributes.rank},
                         {"axes", attributes.axes},
                         {"views", attributes.views},
                         {"aliases", attributes.aliases},
                         {"coordinates", attributes.coordinates},
                         {"compute_dtype", attributes.compute_dtype},
                         {"provenance", attributes.provenance}})
      .dump();
}

std::optional<RunAttributes> attributes_from_json(std::string_view text) try {
  if (text.size() > 8 * kMaxAttributeBytes) return std::nullopt;  // attributes, escaped
  if (inspect_json(text).deepest > 1) return std::nullopt;        // none of the attributes is a list or an object
  const nlohmann::json json = nlohmann::json::parse(text);
  return RunAttributes{integer_from<std::int32_t>(json.at("ttrace_version")),
                       json.at("run_id"),
                       integer_from<std::int32_t>(json.at("world_size")),
                       integer_from<std::int32_t>(json.at("rank")),
                       json.at("axes"),
                       json.at("aliases"),
                       json.at("coordinates"),
                       json.at("compute_dtype"),
                       json.at("provenance"),
                       json.value("views", RunAttributes().views)};
} catch (const nlohmann::json::exception&) {
  return std::nullopt;
} catch (const std::out_of_range&) {
  return std::nullopt;
}

std::optional<RunDescription> parse_attributes(const RunAttributes& attributes) try {
  RunDescription run;
  run.run_id = attributes.run_id;
  run.rank = attributes.rank;
  run.world_size = attributes.world_size;
  run.mesh.axes = axes_from(parsed(attributes.axes));
  for (const nlohmann::json& factoring : parsed(attributes.views).get<std::vector<nlohmann::json>>()) {
    run.mesh.further_factorings.push_back(axes_from(factoring));
  }
  parsed(attributes.aliases).get_to(run.mesh.aliases);
  for (const auto& [axis, coordinate] : parsed(attributes.coordinates).get<std::map<std::string, nlohmann::json>>()) {
    run.coordinates[axis] = integer_from<std::int64_t>(coordinate);
  }
  run.compute_dtype = attributes.compute_dtype;
  run.provenance = attributes.provenance;
  return run;
} catch (const nlohmann::json::exception&) {
  return std::nullopt;
} catch (const std::out_of_range&) {
  return std::nullopt;
}

std::string objection_to_run(const RunDescription& run) {
  if (run.run_id.empty()) return "run id is empty; expected one per run";
  if (std::string objection = objection_to_text(run.run_id, "run id"); !objection.empty()) return objection;
  if (run.world_size < 1 || run.world_size > kMaxWorldSize) {
    return fmt::format("world size is {}; expected 1 to {}", run.world_size, kMaxWorldSize);
  }
  if (run.rank < 0 || run.rank >= run.world_size) {
    return fmt::format("rank is {}; expected 0 to {}", run.rank, run.world_size - 1);
  }
  if (std::string objection = objection_to_mesh(run); !objection.empty()) return objection;
  if (std::string objection = objection_to_coordinates(run); !objection.empty()) return objection;
  return objection_to_description(run);
}

}  // namespace ttrace
