// Reports and their parts as JSON values.
#pragma once

#include <nlohmann/json.hpp>

#include "base/outcome.h"

namespace ttrace {

nlohmann::ordered_json to_object(const Finding& finding);
nlohmann::ordered_json to_object(const Report& report);  // ttrace-report/5
nlohmann::ordered_json to_object_without_findings(const Report& report);

// Serializes with an indent of two. Names are bytes from traces: those that are no UTF-8 become U+FFFD.
std::string to_text(const nlohmann::ordered_json& json);

}  // namespace ttrace
