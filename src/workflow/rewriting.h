// What a collected run is given in place of its own values: the options of `ttrace collect`, and the tensors as its
// ranks find them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "ttrace/annotation.h"

namespace ttrace {

struct RewriteOptions {
  // Traces to take the values from, or only their norms; empty: not asked for. All that are given are one.
  std::filesystem::path inject, rewrite, inject_params, consistent_init;
  // An earlier trace of the same command, which says how its ranks hold each tensor. Empty: the ranks hold what those
  // of the trace above do.
  std::filesystem::path layout;
};

// Both are null where the options ask for nothing.
struct PreparedValues {
  nlohmann::json for_ranks;   // {"directory", "activations", "parameters", "integers"}
  nlohmann::json provenance;  // what the trace of the run says of it, under `rewritten`
};

// Where the values do not lie in a trace as the ranks need them, writes a trace into `scratch` that has them so, and
// prints to stderr what could not be written. Throws InputError, also where the options contradict each other.
PreparedValues prepare_values(const RewriteOptions& options, const Annotations& annotations,
                              std::optional<std::uint64_t> perturb, const std::filesystem::path& scratch);

}  // namespace ttrace
