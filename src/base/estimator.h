// Estimators, what perturbed runs perturb, and the margin of what is estimated.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ttrace {

// The words in quotes are those of options, tolerance files and traces.
enum class Estimator : std::uint8_t {
  kInput,      // "input": the first floating-point activation of every micro-batch (TTrace, section 4.5)
  kModules,    // "modules": the output of every module (Monte Carlo arithmetic)
  kRewritten,  // "rewritten": all that the modules of a rewritten run are given
};
inline constexpr Estimator kDefaultEstimator = Estimator::kInput;

// allowed = margin * max(estimate, floor). Over the correct configurations of tools/laboratory/evaluations/margins.py a
// correct tensor differs by up to 2.4 times max(estimate, floor), and 99 of 100 by less than 1.5 times; known bugs sit
// at 10 to 300 epsilon, that is 3 to 100 times the estimate. src/manual/estimate-tolerance.md has the table.
inline constexpr double kDefaultMargin = 3;

// The names stand in the order of the enumerators.
inline constexpr std::array<std::string_view, 3> kEstimatorNames = {"input", "modules", "rewritten"};
static_assert(kEstimatorNames.size() == static_cast<std::size_t>(Estimator::kRewritten) + 1);

std::string_view name_of(Estimator estimator);
std::optional<Estimator> estimator_from_name(std::string_view name);

}  // namespace ttrace
