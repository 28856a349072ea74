// Between what is known about a run and what the file says of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "format/format.h"
#include "ttrace/run_description.h"

namespace ttrace {

RunAttributes attributes_of(const RunDescription& run);

// The attributes as one JSON object, as the journal and /ttrace/run hold them. The strings must be UTF-8.
std::string to_json(const RunAttributes& attributes);
std::optional<RunAttributes> attributes_from_json(std::string_view text);  // nothing where it is malformed

// Reads the JSON texts; nothing where one is malformed.
std::optional<RunDescription> parse_attributes(const RunAttributes& attributes);

// Why `run` can't be a run's description, with what was expected; or empty. Writer and reader agree on it.
std::string objection_to_run(const RunDescription& run);

}  // namespace ttrace
