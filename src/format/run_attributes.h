// Converts between the description of a run and the attributes that a file stores.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/run_description.h"
#include "format/format.h"

namespace ttrace {

RunAttributes attributes_of(const RunDescription& run);

// Writes the attributes as one JSON object, as the journal and /ttrace/run hold them. The strings must be UTF-8.
std::string to_json(const RunAttributes& attributes);
std::optional<RunAttributes> attributes_from_json(std::string_view text);  // nothing where it is malformed

// Parses the attributes that are JSON texts; nothing where one is malformed.
std::optional<RunDescription> parse_attributes(const RunAttributes& attributes);

// Says why `run` can't be a run's description, and what was expected; empty where it can. The writer and the reader of
// traces both use it, so that they accept the same runs.
std::string objection_to_run(const RunDescription& run);

}  // namespace ttrace
