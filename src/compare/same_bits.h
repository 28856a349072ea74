// Tells whether two recorded tensors have the same bits, by what their entries say of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/trace.h"

namespace ttrace {

enum class SameBits : std::uint8_t {
  kNo,
  kYes,
  kUnknown,  // sketches whose tensors' bytes were summed up in two ways
};

// `stored` is what the file holds at the entry's place. Of a tensor whose elements are there, it is read where the other
// is a sketch with a fingerprint. Shapes and dtypes are not compared.
SameBits have_same_bits(const Entry& a, const std::byte* stored_a, const Entry& b, const std::byte* stored_b);

}  // namespace ttrace
