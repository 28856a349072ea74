#include "workflow/reference.h"

#include "ttrace/judge/match.h"
#include "ttrace/load/trace_reader.h"

namespace ttrace {

std::unique_ptr<Reference> read_reference(const std::string& path, const Annotations& annotations) {
  if (path.empty()) return nullptr;
  auto reference = std::make_unique<Reference>();
  reference->trace = read_trace(path);
  reference->alignment = align(reference->trace, annotations, {});
  require_whole(reference->alignment, path);
  return reference;
}

ModelLayout layout_of(const std::unique_ptr<Reference>& reference) {
  return reference ? layout_of(reference->alignment) : ModelLayout{};
}

}  // namespace ttrace
