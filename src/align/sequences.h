// Packed sequences: where each begins and how much of it is padding, as the ranks recorded it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "identify/identity.h"

namespace ttrace {

// The integer tensors that annotations name as sequence lengths: by pattern, rank, iteration, local micro-batch.
using LengthTensors = std::map<std::tuple<std::string, std::int32_t, std::int32_t, std::int32_t>, const Entry*>;
LengthTensors find_length_tensors(const Census& census, const Annotations& annotations);

// The segments of the dimension that `use` shards, or a text that says what is wrong with the recorded lengths, which
// the training code may have caused. The shards must agree, because the lengths are global. Throws InputError when no
// shard's rank has recorded a tensor of the name that the annotation gives.
using Sequences = std::variant<std::vector<Segment>, std::string>;
Sequences sequences_of(const LengthTensors& tensors, const AxisUse& use, const Group& group);

}  // namespace ttrace
