// What a difference of log-probabilities means to those who train by them: between a trainer and the engine that made
// its samples.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compare/compare.h"

namespace ttrace {

// A ratio of probabilities that is further from 1 is clipped, as PPO's default has it.
inline constexpr double kClipRange = 0.2;

// Returns a line for each pair of log-probabilities, known by their name (`logprobs`, `log_probs`) and by having
// no element above 0: the largest and the mean distance; the divergence of the engine, the candidate,
// from the trainer, the reference, by its estimators on samples of the engine (http://joschu.net/blog/kl-approx.html);
// and the share of ratios that are clipped. Elements that are not finite are left out.
std::vector<std::string> notes_of_log_probs(std::span<const TensorPair> pairs);

}  // namespace ttrace
