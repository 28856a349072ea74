// What a second pass, in which every module was given the reference's values (ttrace/rewrite/), says of the roots that
// a check has found: data flow over recorded tensors cannot tell a module that is wrong from one that makes a small
// error large, nor see a second bug in the wake of the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ttrace/report/report.h"

namespace ttrace {

// What the second pass is to rewrite, as follows from the first one's findings.
struct SecondPass {
  bool modules = false;     // some input, output or gradient is wrong
  bool parameters = false;  // initial parameters are wrong: else every module that has one stays wrong
  std::string reason;       // why not, where neither is
};
SecondPass plan_second_pass(const Report& first);

enum class Standing : std::uint8_t {
  kConfirmed,  // "confirmed": the module is wrong by itself
  kMoved,      // "moved": right by itself, its error came in
  kFound,      // "found": wrong by itself, and in the first pass in the wake of another
};
std::string_view name_of(Standing standing);

struct LocalizedRoot {
  Standing standing = Standing::kConfirmed;
  std::size_t root = 0;  // in the first report's `roots`; for kFound, in the second's
  // Of a confirmed one, the root of the same module in the second report, where its error is seen alone.
  std::optional<std::size_t> alone;
};

// Confirmed and found ones in order of execution, then the moved ones.
std::vector<LocalizedRoot> localize(const Report& first, const Report& second);

}  // namespace ttrace
