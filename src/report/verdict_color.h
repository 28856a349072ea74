// The colour that a verdict has on a terminal.
#pragma once

#include "base/outcome.h"
#include "text/paint.h"

namespace ttrace {

inline Color color_of(RunVerdict verdict) {
  if (verdict == RunVerdict::kSame) return Color::kGood;
  return verdict == RunVerdict::kDifferent ? Color::kBad : Color::kUnclear;
}

}  // namespace ttrace
