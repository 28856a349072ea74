// Gives the model chunks of a rank other numbers, wherever its trace has them, and tells what there is of no model.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// Before the number of a tensor that an optimizer trains and no module has: `(optimizer).0`, by the collector.
inline constexpr std::string_view kOfNoModule = "(optimizer).";

// True where these are some names, and all of such tensors.
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
