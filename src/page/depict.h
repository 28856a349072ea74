// Looks once more at the tensors of a report that are worth a picture.
#pragma once

#include <vector>

#include "base/alignment.h"
#include "base/outcome.h"
#include "base/picture.h"

namespace ttrace {

inline constexpr std::size_t kMostPictures = 128;
inline constexpr std::int64_t kMostElementsRead = std::int64_t{1} << 27;  // half a second's work

// Makes a picture of each root, and of the worst tensor of each kind and module (layers and experts taken together),
// wrong ones first, then of others, until there are kMostPictures. Tensors are read until they make up
// kMostElementsRead, the first one whatever its size; of further ones only the shards are drawn. The memory in use
// stays bounded, whatever their sizes.
std::vector<Picture> depict(const Report& report, const Alignment& reference, const Alignment& candidate);

// A picture of one tensor; of its shards alone where it has more than `most_elements`. `differing_rank` is a rank whose
// copy is drawn where the candidate's replicas differ, or -1.
Picture depict_tensor(const LogicalTensor& reference, const LogicalTensor& candidate, std::int32_t differing_rank = -1,
                      std::int64_t most_elements = kMostElementsRead);

}  // namespace ttrace
