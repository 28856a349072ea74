// Shows who holds which part of a tensor, as boxes to draw.
#pragma once

#include "base/alignment.h"
#include "base/picture.h"

namespace ttrace {

ShardPicture depict_shards(const LogicalTensor& tensor);

}  // namespace ttrace
