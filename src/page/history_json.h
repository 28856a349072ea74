// A history as the page reads it.
#pragma once

#include <nlohmann/json.hpp>

#include "history/history.h"

namespace ttrace {

nlohmann::ordered_json to_object(const History& history);

}  // namespace ttrace
