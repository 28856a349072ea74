// The colour that a verdict has on a terminal.
#pragma once

#include "text/paint.h"
#include "ttrace/outcome.h"

namespace ttrace {

inline Color color_of(RunVerdict verdict) {
  if (verdict == RunVerdict::kSame) return Color::kGood;
  return verdict == RunVerdict::kDifferent ? Color::kBad : Color::kUnclear;
}

}  // namespace ttrace
