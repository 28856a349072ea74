#include "workflow/annotations.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/mesh.h"
#include "files/annotation_file.h"
#include "files/correspondence_file.h"
#include "host/installation.h"

namespace ttrace {

std::filesystem::path preset_directory() { return beside_program("share/ttrace/annotations"); }

bool names_annotations(const AnnotationSource& source) { return !source.file.empty() && source.file != kNoAnnotations; }

Annotations load_annotations(const AnnotationSource& source) {
  Annotations annotations;
  if (names_annotations(source)) annotations = read_annotations(source, preset_directory());
  if (!source.axes.empty()) {
    annotations.axes = {source.axes, "--axes"};
    parse_mesh(source.axes, ranks_of_mesh(source.axes), annotations.axes->where);
  }
  if (names_annotations(source) || source.settings.empty()) return annotations;
  throw InputError(fmt::format("parameter {}: there are no annotations; expected some with it", source.settings[0]));
}

Annotations load_annotations(const AnnotationSource& source, const Trace& trace) {
  if (!source.file.empty() || trace.program == nullptr || !trace.program->preset) return load_annotations(source);
  const AnnotationSource& named = *trace.program->preset;
  AnnotationSource preset = source;
  preset.file = preset_directory() / (named.file + ".yaml");
  if (!std::filesystem::exists(preset.file)) {
    throw InputError(fmt::format("{}: its program names the preset '{}', which this ttrace does not have; expected -a",
                                 trace.directory.string(), named.file));
  }
  preset.settings = named.settings;
  preset.settings.insert(preset.settings.end(), source.settings.begin(), source.settings.end());
  Annotations annotations = load_annotations(preset);
  annotations.of_program = true;
  return annotations;
}

bool says_mapping(const Trace& trace) {
  if (trace.program != nullptr) return true;
  return std::any_of(trace.ranks.begin(), trace.ranks.end(), [](const RankTrace& rank) {
    return std::any_of(rank.entries.begin(), rank.entries.end(),
                       [](const Entry& entry) { return entry.mapping != nullptr; });
  });
}

Correspondence load_correspondence(const std::string& name) {
  return read_correspondence(name, preset_directory() / "correspondences");
}

}  // namespace ttrace
