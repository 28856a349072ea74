// JSON of reports and their parts.
#pragma once

#include <nlohmann/json.hpp>

#include "ttrace/outcome.h"

namespace ttrace {

nlohmann::ordered_json to_object(const Finding& finding);
nlohmann::ordered_json to_object(const Report& report);  // ttrace-report/2

// Names are bytes from traces: what is no UTF-8 becomes U+FFFD.
std::string to_text(const nlohmann::ordered_json& json);

}  // namespace ttrace
