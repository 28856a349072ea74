#include "workflow/reference.h"

#include "workflow/saved.h"

namespace ttrace {

std::optional<AlignedTrace> read_reference(const std::string& path, const Annotations& annotations,
                                           const std::string& python) {
  if (path.empty()) return std::nullopt;
  return align_whole(read_run(path, {python}), annotations);
}

ModelLayout layout_of(const std::optional<AlignedTrace>& reference) {
  return reference ? layout_of(reference->alignment) : ModelLayout{};
}

}  // namespace ttrace
