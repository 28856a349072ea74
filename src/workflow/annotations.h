// Loads the annotations that a command is given.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/annotation.h"
#include "base/trace.h"
#include "correspond/correspondence.h"

namespace ttrace {

// Tells whether the source is a file or a preset.
bool names_annotations(const AnnotationSource& source);

// The directory of the presets that come with the program.
std::filesystem::path preset_directory();

// Reads the source, with the presets that come with the program; returns no rules where it names no file. The source's
// axes take the place of the file's. Throws
// InputError.
Annotations load_annotations(const AnnotationSource& source);

// The same for a trace: where the source names no file, those that the trace's program names, with the source's axes
// and parameters.
Annotations load_annotations(const AnnotationSource& source, const Trace& trace);

// True where the program or its recorded tensors say how the ranks hold them.
bool says_mapping(const Trace& trace);

// Reads a correspondence file, or one that comes with the program. Throws InputError.
Correspondence load_correspondence(const std::string& name);

// The same with sizes of axes that nothing in the runs need tell: those that `settings` give (`NAME=VALUE`), which are
// taken out of them, and those that a config.json beside one of `sources` says.
Correspondence load_correspondence(const std::string& name, std::vector<std::string>& settings,
                                   const std::vector<std::string>& sources);

}  // namespace ttrace
