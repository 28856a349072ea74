// Finds the logical tensors that belong to a given one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

const LogicalTensor* find_tensor(const Alignment& alignment, const TensorId& id);  // null when it was not recorded

// The tensor of this kind and name in the iteration, micro-batch and pass of `id`; null when it was not recorded.
const LogicalTensor* find_tensor(const Alignment& alignment, TensorId id, Kind kind, const std::string& name);

// The tensors of this kind of all calls of a module in the iteration, micro-batch and pass of `id`, in order.
std::vector<const LogicalTensor*> find_calls(const Alignment& alignment, const TensorId& id, Kind kind,
                                             std::string_view module);

// True where the side holds a tensor of this kind of the call that `id` is of.
bool has_any_of_call(const Alignment& alignment, const TensorId& id, Kind kind);

// How many micro-batches each iteration has, by the last of which something was recorded.
std::map<std::int32_t, std::int64_t> microbatch_counts(const Alignment& alignment);

// The iterations of both sides that have other numbers of micro-batches, with the numbers of both.
struct MicrobatchCounts {
  std::int64_t reference = 0, candidate = 0;
  bool operator==(const MicrobatchCounts&) const = default;
};
std::map<std::int32_t, MicrobatchCounts> other_microbatch_counts(const Alignment& reference,
                                                                 const Alignment& candidate);

// True for what an iteration has made of a model that no optimizer updates: it is recorded after the iterations that
// change it, and never before one, as the buffers of a model that trains are before a whole iteration.
bool is_of_other_model(const Alignment& alignment, const TensorId& id);

// The parameter `name` as the iteration of `id` begins with it; null when it was not recorded.
const LogicalTensor* parameter_at(const Alignment& alignment, const TensorId& id, const std::string& name);

}  // namespace ttrace
