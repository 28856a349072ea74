// What a rank's file says of the run that it belongs to.
#pragma once

#include <cstdint>
#include <string>

#include "ttrace/mesh.h"

namespace ttrace {

struct RunDescription {
  std::string run_id{};
  std::int32_t rank = 0;
  std::int32_t world_size = 1;
  Mesh mesh{};                // sizes multiply to `world_size`
  Coordinates coordinates{};  // one per axis of the mesh and its views, inside its size
  std::string compute_dtype{};
  std::string provenance = "{}";  // a JSON object
};

}  // namespace ttrace
