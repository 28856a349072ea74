// The annotations that a command is given.
#pragma once

#include <filesystem>

#include "ttrace/annotation.h"

namespace ttrace {

// The directory of the presets that come with the program.
std::filesystem::path preset_directory();

// Those of the source, read with the presets that come with the program; none where it names no file. Throws
// InputError.
Annotations load_annotations(const AnnotationSource& source);

}  // namespace ttrace
