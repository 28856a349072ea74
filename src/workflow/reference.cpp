#include "workflow/reference.h"

#include "load/trace_reader.h"

namespace ttrace {

std::optional<AlignedTrace> read_reference(const std::string& path, const Annotations& annotations) {
  if (path.empty()) return std::nullopt;
  return align_whole(read_trace(path), annotations);
}

ModelLayout layout_of(const std::optional<AlignedTrace>& reference) {
  return reference ? layout_of(reference->alignment) : ModelLayout{};
}

}  // namespace ttrace
