// A waiver: a wrong tensor that somebody knows of and accepts until a day.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/trace.h"

namespace ttrace {

struct Waiver {
  std::string pattern;                  // of the tensor's name, as in annotations
  std::set<Kind> kinds;                 // empty: all
  std::vector<std::string> candidates;  // globs of their names; empty: all
  std::string reason;                   // required: somebody will ask
  std::string expires;                  // the last day on which it holds, as in 2027-01-31
  int line = 0;                         // in the file, for messages
};

}  // namespace ttrace
