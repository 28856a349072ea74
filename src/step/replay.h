// Computes updates again, element by element, and measures how far the recorded ones are from that.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "step/low_precision.h"
#include "step/series.h"
#include "step/whole_tensor.h"

namespace ttrace {

// Limits how far errors of an update may go, in units of the bound (step/step.h).
inline constexpr double kStepMargin = 2;

// The element whose error is largest, in units of what rounding explains.
struct WorstUpdate {
  double ratio = 0;
  std::int64_t index = -1;  // in the rank's part; -1: none has an error
  double recorded = 0, expected = 0;
};

// Holds what was measured of one update. Tallies of the parts of a tensor add up in the order of its elements.
struct UpdateTally {
  std::int64_t wrong = 0;           // elements
  std::int64_t wrong_and_zero = 0;  // ... that were not updated at all
  std::int64_t not_finite = 0;      // elements that no number is expected of: their gradient or state is none
  WorstUpdate worst;
  std::int64_t copied = 0;                          // elements whose copy to the parameter was looked at
  std::int64_t wrong_copies = 0, stale_copies = 0;  // of the latter, those that are as before the step
  WorstUpdate worst_copy;
  double farthest_copy = 0, largest_copied = 0;  // how far a wrong copy is away at most; the size of the largest of all
  MovesByArithmetic moves{};                     // of an update that is computed again to the bit

  void add(const UpdateTally& other);
};

// The least-squares fit of the wrong elements, recorded = -lr direction - decay value, weighted by their bounds.
struct StepFit {
  double lr = 0, decay = 0;
  bool explains = false;  // the elements are that, within what rounding explains
};

// Tells what is wrong with one update, element by element.
struct UpdateDetail {
  std::vector<std::uint8_t> wrong, wrong_copy;  // one for each element of the rank's part
  StepFit fit;
};

// True where a step is computed again in the parameter's own dtype, as PyTorch does (step/low_precision.h).
bool is_to_the_bit(const RankUpdate& update);

// Replays whole series on `threads` threads, as in CompareOptions, and returns a tally for each update of each. Memory
// in use stays bounded.
std::vector<std::vector<UpdateTally>> replay_series(std::span<const ParameterSeries* const> all, int threads);

// The bytes that replaying a series reads.
std::uint64_t bytes_of(const ParameterSeries& series);

// Replays the elements [begin, end) of all updates of a series. Of one that cannot be computed again, the tally has
// what its copy shows, and nothing where the value is not known either. Where `detail` is given, the elements are the
// whole part, and it is filled for the update at `detailed`. `factor` is what multiplies the updates of `moves`. Where
// `wholes` is empty, they are found first (step/whole_tensor.h).
std::vector<UpdateTally> replay(const ParameterSeries& series, std::int64_t begin, std::int64_t end,
                                std::size_t detailed = 0, UpdateDetail* detail = nullptr, double factor = 1,
                                std::span<const WholeTensor> wholes = {});

// Returns how far the update at `jumping` moves in one element, at most, if that element's gradient is off by
// `gradient_error`, up or down, in all iterations of the series: where it is about as small as Adam's eps, or as the
// error, by more than the error's share of the gradient. What a recorded state was made of is taken as it is.
double largest_jump(const ParameterSeries& series, std::size_t jumping, double gradient_error);

}  // namespace ttrace
