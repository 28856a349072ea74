#include "workflow/recording_budget.h"

#include <algorithm>
#include <cmath>

namespace ttrace {
namespace {

constexpr std::size_t kMarks = 4;             // what one iteration costs is a mean of the last three
constexpr double kRecordedInPeriod = 1.25;    // one, and in each fourth period one by chance (schedule.py)
constexpr double kWorthwhile = 1.25;          // times more or fewer: less than that is how much a step time scatters
constexpr std::int32_t kMostTimesFewer = 64;  // what recording costs in the steps between, no number makes less

}  // namespace

bool RecordingBudget::add(const RecordedMark& mark) {
  marks_.push_back(mark);
  if (marks_.size() > kMarks) marks_.pop_front();
  const std::optional<RecordingCost> now = cost();
  if (!now) return false;
  const std::int32_t wanted = affordable(*now);
  const double change = static_cast<double>(wanted) / every_;
  const bool is_worthwhile = change > kWorthwhile || change < 1 / kWorthwhile || (wanted == least_ && every_ != least_);
  if (!is_worthwhile) return false;
  every_ = wanted;
  return true;
}

std::optional<RecordingCost> RecordingBudget::cost() const {
  if (marks_.size() < 2) return std::nullopt;
  const RecordedMark &first = marks_.front(), &last = marks_.back();
  const double recording = last.recording_seconds - first.recording_seconds, all = last.at - first.at;
  const std::int32_t steps = last.iteration - first.iteration;
  if (steps <= 0 || all <= 0 || recording < 0) return std::nullopt;
  return RecordingCost{recording / static_cast<double>(marks_.size() - 1), std::max(all - recording, 0.0) / steps,
                       recording / all};
}

std::int32_t RecordingBudget::affordable(const RecordingCost& cost) const {
  const double recorded = kRecordedInPeriod * cost.recorded_seconds;
  const double most = static_cast<double>(least_) * kMostTimesFewer;
  // `every` steps of the program and what is recorded in them: recorded <= share (recorded + every step_seconds).
  const double every = recorded * (1 - share_) / (share_ * std::max(cost.step_seconds, 1e-9));
  return static_cast<std::int32_t>(std::clamp(std::ceil(every), static_cast<double>(least_), most));
}

}  // namespace ttrace
