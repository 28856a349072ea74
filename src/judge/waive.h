#pragma once

#include <span>

#include "base/finding.h"
#include "base/waiver.h"

namespace ttrace {

// The first waiver that names the tensor; null where none does.
const Waiver* waiver_of(std::span<const Waiver> waivers, const TensorId& id);

}  // namespace ttrace
