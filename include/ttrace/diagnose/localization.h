// What a second pass, in which every module was given the reference's values (ttrace/rewrite/), says of the roots that
// a check has found: data flow over recorded tensors cannot tell a module that is wrong from one that makes a small
// error large, nor see a second bug in the wake of the first.
#pragma once

#include <string>

#include "ttrace/outcome.h"

namespace ttrace {

// What the second pass is to rewrite, as follows from the first one's findings.
struct SecondPass {
  bool modules = false;     // some input, output or gradient is wrong
  bool parameters = false;  // initial parameters are wrong: else every module that has one stays wrong
  std::string reason;       // why not, where neither is
};
SecondPass plan_second_pass(const Report& first);

// Revises `report.roots` by the report on the second run: confirmed and found ones in order of execution, then the
// moved ones. What nothing known explained may be told by itself: then the diagnosis is the second report's.
void add_second_run(Report& report, const Report& second);

}  // namespace ttrace
