// Exit codes, the same for all subcommands: stable, for CI.
#pragma once

#include "base/outcome.h"

namespace ttrace {

inline constexpr int kExitSame = 0;          // done; nothing differs
inline constexpr int kExitDifferent = 1;     // the traces differ
inline constexpr int kExitCouldNotLook = 2;  // misuse, unreadable input, no tensor in common, too little was seen

constexpr int exit_code_of(RunVerdict verdict) {
  if (verdict == RunVerdict::kCouldNotLook) return kExitCouldNotLook;
  return verdict == RunVerdict::kSame ? kExitSame : kExitDifferent;
}

}  // namespace ttrace
