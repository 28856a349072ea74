// Prepares the values that a collected run is given in place of its own: from the options of `ttrace collect` to the
// tensors as its ranks find them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/annotation.h"

namespace ttrace {

struct RewriteOptions {
  // Traces to take the values from, or only their norms; empty: not asked for. All that are not empty name one trace.
  std::filesystem::path inject, rewrite, inject_params, consistent_init;
  // An earlier trace of the same command, which tells the shards of its ranks. Empty: the shards are those of the trace
  // above.
  std::filesystem::path layout;
  // Of that command's loss and gradients, where an earlier check has told it and nothing says it.
  std::optional<Factor> loss_scale;
};

// Both are null where the options ask for nothing.
struct PreparedValues {
  nlohmann::json for_ranks;   // {"directory", "activations", "parameters", "integers"}
  nlohmann::json provenance;  // what the run's provenance gets under `rewritten`
};

// Writes a trace into `scratch` that has the values as the ranks need them, unless a given trace already has them so,
// and prints to stderr what could not be written. Throws InputError, also where the options contradict each other.
PreparedValues prepare_values(const RewriteOptions& options, const AnnotationSource& annotations,
                              std::optional<std::uint64_t> perturb, const std::filesystem::path& scratch);

}  // namespace ttrace
