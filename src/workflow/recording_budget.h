// How often the iterations of a watched job may be recorded, for what that costs it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace ttrace {

// A recorded iteration, when it was closed.
struct RecordedMark {
  std::int32_t iteration = 0;
  double recording_seconds = 0;  // that a rank has spent on recording since the job began
  double at = 0;                 // seconds on any clock
};

// What recent iterations cost.
struct RecordingCost {
  double recorded_seconds = 0;  // on recording, from one recorded iteration to the next
  double step_seconds = 0;      // of the program alone
  double share = 0;             // of the job's time that went into recording
};

class RecordingBudget {
 public:
  // `every`: what was asked for, and is never fallen below. `share`: of the job's time, as in 0.02.
  RecordingBudget(std::int32_t every, double share) : least_(every), every_(every), share_(share) {}

  // Takes one more iteration, later than the others. Returns true where from now on fewer or more are to be recorded.
  bool add(const RecordedMark& mark);

  std::int32_t every() const { return every_; }
  // Absent before there are two marks.
  std::optional<RecordingCost> cost() const;

 private:
  std::int32_t affordable(const RecordingCost& cost) const;

  std::int32_t least_, every_;
  double share_;
  std::deque<RecordedMark> marks_;
};

}  // namespace ttrace
