// Reads annotation files: annotations/README.md has the schema.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/annotation.h"

namespace ttrace {

// Reads the file with all that it includes. `presets` is the directory of those that come with the program, or empty.
// Throws InputError with `file:line` for YAML that does not parse, unknown keys and parameters, values of the wrong
// type.
Annotations read_annotations(const AnnotationSource& source, const std::filesystem::path& presets);
Annotations parse_annotations(const std::string& text, const std::string& where,
                              const std::filesystem::path& presets = {});

// Reads the file of a job's ranks, which may include any file: `ttrace collect`, which writes it, has read what it
// includes as above.
Annotations read_annotations_of_job(const std::string& file, const std::filesystem::path& presets);

// Returns the text of such a file, which includes `path` and sets its parameters.
std::string including_file(const std::filesystem::path& path, const std::vector<std::string>& settings);

}  // namespace ttrace
