// Model chunks of a rank under other numbers, wherever its trace has them.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.h"

namespace ttrace {

inline constexpr std::string_view kOfNoModule = "(optimizer).";  // the collector's, before their number

// True where these are some, and all are of tensors that an optimizer trains and no module has.
bool are_of_no_module(const std::vector<std::string>& names);

// Tells what a rank recorded of no model from what it recorded of its models. Both have the number of a chunk.
class OfNoModel {
 public:
  explicit OfNoModel(const RankTrace& rank);

  // True for what an optimizer trains and no module has, and for what a program keeps beside its models: a moving
  // average, a criterion's centre. Of these no buffer is recorded before an iteration, only after it.
  bool holds(const TensorId& id) const;

 private:
  std::set<std::string> buffers_;  // of models
};

// Gives the chunks other numbers, no two the same. What is of no model keeps its own.
void renumber_chunks(RankTrace& rank, const std::function<std::int32_t(std::int32_t)>& new_number);

}  // namespace ttrace
