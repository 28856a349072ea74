// Whether ranks whose parameters were copies of each other still hold equal ones.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// A parameter of which `parted` hold other values than `others`, and held the same before.
struct PartedCopies {
  std::string tensor;
  Kind kind = Kind::kParam;
  std::vector<std::int32_t> parted, others;
};

// Looks at the iterations of a job, one after the other. What two iterations have shown to be copies, by equal bits
// before a step that changed them and behind it, is to stay so: where nobody says how ranks are arranged, or tensor
// parallel ranks hold a parameter whole.
class CopyWatch {
 public:
  // Reads the index alone.
  std::vector<PartedCopies> look_at(const Trace& trace);

 private:
  using Ranks = std::set<std::int32_t>;
  struct Copies {
    std::vector<Ranks> groups;  // of equal bits, each of two ranks or more
    int shown = 0;              // by so many iterations
  };
  std::map<std::pair<std::int32_t, std::string>, Copies> copies_;  // by chunk and name of the parameter
};

}  // namespace ttrace
