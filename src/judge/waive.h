#pragma once

#include <span>

#include "ttrace/finding.h"
#include "ttrace/waiver.h"

namespace ttrace {

// The first waiver that names the tensor; null where none does.
const Waiver* waiver_of(std::span<const Waiver> waivers, const TensorId& id);

}  // namespace ttrace
