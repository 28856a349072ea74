// Exit codes, the same for all subcommands: stable, for CI.
#pragma once

namespace ttrace {

inline constexpr int kExitSame = 0;          // done; nothing differs
inline constexpr int kExitDifferent = 1;     // the traces differ
inline constexpr int kExitCouldNotLook = 2;  // misuse, unreadable input, no tensor in common

}  // namespace ttrace
