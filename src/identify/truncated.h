// Samples of which a rank's model is given the beginning alone, while the reference's is given all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>

#include "identify/samples.h"

namespace ttrace {

// What such an input tells of the samples, and which ranks lack something; none where all that they lack is padding.
struct TruncatedTelling {
  Telling telling;
  Truncation truncation;
};

// Of an input whose parts are, bit for bit, the beginnings of the reference's samples, dealt out in stretches or in
// turns. Padding is one value, the same behind most samples, or a repetition of each sample's last one.
std::optional<TruncatedTelling> truncated_telling_of(const SlicedInput& input);

}  // namespace ttrace
