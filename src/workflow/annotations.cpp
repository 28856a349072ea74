#include "workflow/annotations.h"

#include <fmt/format.h>

#include "process/installation.h"
#include "ttrace/error.h"
#include "ttrace/load/annotation_file.h"

namespace ttrace {

std::filesystem::path preset_directory() { return beside_program("share/ttrace/annotations"); }

Annotations load_annotations(const AnnotationSource& source) {
  if (!source.file.empty()) return read_annotations(source, preset_directory());
  if (source.settings.empty()) return {};
  throw InputError(fmt::format("parameter {}: there are no annotations; expected some with it", source.settings[0]));
}

}  // namespace ttrace
