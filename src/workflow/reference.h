// The reference of commands that can do without one.
#pragma once

#include <memory>
#include <string>

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

// Aligned: what it holds is whole.
struct Reference {
  Trace trace;
  Alignment alignment;  // of `trace`
};

// Null where `path` is empty. Throws InputError where it is not whole.
std::unique_ptr<Reference> read_reference(const std::string& path, const Annotations& annotations);

// What a candidate is aligned with; that of no model where there is no reference.
ModelLayout layout_of(const std::unique_ptr<Reference>& reference);

}  // namespace ttrace
