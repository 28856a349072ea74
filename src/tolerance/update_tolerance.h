// Says how far the updates of correct runs are from being the reference's: what an optimizer whose rule is not known is
// held to (step/regression.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ttrace {

enum class UpdateMeasure : std::uint8_t {
  kPool,        // the slope over all tensors, away from 1
  kTensor,      // the slope of a tensor, the largest
  kDecay,       // the share of the parameter in the updates, over all tensors
  kNorm,        // the ratio of the norms, of a tensor with few elements above rounding, away from 1; the largest
  kStillAbove,  // the share of elements above rounding that stand still and do not in the reference; the largest
  kStill,       // the same of all elements
};
inline constexpr std::array<std::string_view, 6> kUpdateMeasures = {"pool", "tensor",      "decay",
                                                                    "norm", "still_above", "still"};

// Holds, for one measure, a number for each perturbed run, and then one for the rerun where there is one. They are from
// 0 to 1: 1 stands for all that is more, and where there was nothing to measure.
using UpdateSamples = std::vector<double>;
using UpdateTolerance = std::array<UpdateSamples, kUpdateMeasures.size()>;

// Holds tolerances by the optimizer's class, as the reference names it ("" where it says nothing), and iteration.
using UpdateTolerances = std::map<std::pair<std::string, std::int32_t>, UpdateTolerance>;

// Holds, by the names of options, how far those of each run are from the reference's, relatively; only of options that
// are not the same in all runs: a program computed them from what it trains, such as a learning rate from a divergence.
using OptionSamples = std::map<std::string, UpdateSamples>;
using OptionTolerances = std::map<std::pair<std::string, std::int32_t>, OptionSamples>;

// Returns how far such an option may be from the reference's, relatively: as a slope of all tensors, and no further than
// what a user would take for another option.
inline double allowed_for_option(const UpdateSamples& samples) {
  constexpr double kMargin = 10, kMost = 0.01;
  const auto largest = std::max_element(samples.begin(), samples.end());
  return largest == samples.end() ? 0 : std::min(kMargin * *largest, kMost);
}

// Returns what a measure may be: a margin times the largest sample, or its least.
// - A slope or a decay of all tensors is one number a run, and its standard error is that of few tensors where few have
//   most of it: ten times, which Student's t with 5 degrees of freedom exceeds once in 10,000.
// - The slope, or the norm, of a tensor is the worst of many, and in a small one a matter of few elements: five times.
// - Elements that stand still: three times.
// The slopes and the decay have a few rounding steps of fp32 (2^-22 over all tensors, 2^-20 in one); elements that
// stand still have the largest shares that rounding left in correct runs of bf16 with room, 1 % and 10 %. 1 or more:
// rounding moves it as far as any fault would.
inline double allowed_for(const UpdateTolerance& tolerance, UpdateMeasure measure) {
  constexpr std::array<double, kUpdateMeasures.size()> kMargin = {10, 5, 10, 5, 3, 3};
  constexpr std::array<double, kUpdateMeasures.size()> kLeast = {0x1p-22, 0x1p-20, 0x1p-20, 0x1p-20, 0.01, 0.1};
  const auto place = static_cast<std::size_t>(measure);
  const UpdateSamples& samples = tolerance[place];
  const double largest = samples.empty() ? 1 : *std::max_element(samples.begin(), samples.end());
  return std::max(kMargin[place] * largest, kLeast[place]);
}

}  // namespace ttrace
