// The bits of a part of a recorded tensor.
#pragma once

#include <cstddef>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// The elements of the box, row-major, of an entry whose elements lie at `data`.
std::vector<std::byte> bytes_in(const Box& box, const std::byte* data, const Entry& entry);

// True where elements of this dtype are not all one number: shifted by one, they are others.
bool are_varied(const std::vector<std::byte>& bytes, Dtype dtype);

}  // namespace ttrace
