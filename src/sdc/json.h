// The JSON report of `sdc`, of which the page is made as well.
#pragma once

#include <nlohmann/json.hpp>

#include "sdc/report.h"

namespace ttrace {

nlohmann::ordered_json to_object(const SdcReport& report);

}  // namespace ttrace
