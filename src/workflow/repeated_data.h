// Whether data-parallel ranks that are to be given data of their own are given another's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/annotation.h"
#include "base/trace.h"

namespace ttrace {

// Ranks, and the index of the first of them, whose model was given the same bits in all of the iteration.
struct RepeatedData {
  std::int32_t first = 0, second = 0;
  std::string tensor;  // the first input
};

// Looks at the iterations of a job, one after the other. Programs may give all ranks the same on purpose: only once an
// iteration has shown that every rank is given its own, what repeats is wrong.
class DataWatch {
 public:
  // Reads the index alone. Throws InputError.
  std::vector<RepeatedData> look_at(const Trace& trace, const AnnotationSource& annotations);
  bool is_dealt() const { return is_dealt_; }  // each rank was given its own, at least once

 private:
  bool is_dealt_ = false;
};

}  // namespace ttrace
