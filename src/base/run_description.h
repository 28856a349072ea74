// The description of a run that each rank's file holds.
#pragma once

#include <cstdint>
#include <string>

#include "base/mesh.h"

namespace ttrace {

struct RunDescription {
  std::string run_id{};
  std::int32_t rank = 0;
  std::int32_t world_size = 1;
  Mesh mesh{};                // sizes multiply to `world_size`; empty where nobody knows how the ranks are arranged
  Coordinates coordinates{};  // one for each axis of all factorings
  std::string compute_dtype{};
  std::string provenance = "{}";  // a JSON object
};

}  // namespace ttrace
