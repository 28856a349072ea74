#include "workflow/annotations.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/integer.h"
#include "base/mesh.h"
#include "files/annotation_file.h"
#include "files/correspondence_file.h"
#include "host/installation.h"
#include "workflow/saved.h"

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

namespace {

// Returns the axes of which a size can be asked for.
std::set<std::string> sizable_axes(const Correspondence& correspondence) {
  std::set<std::string> axes;
  for (const CorrespondenceRule& rule : correspondence.rules) {
    for (const auto& [what, pattern] : rule.patterns) {
      if (pattern) axes.merge(axes_inside_products(*pattern));
    }
  }
  return axes;
}

// Returns the size that a setting gives to one of the axes; nothing where it speaks of something else. Throws InputError.
std::optional<SizeRule> size_in(const std::string& setting, const std::set<std::string>& axes) {
  const std::size_t equals = setting.find('=');
  const std::string name = setting.substr(0, equals);
  if (equals == std::string::npos || !axes.contains(name)) return std::nullopt;
  const auto number = integer_of(setting.substr(equals + 1));
  if (!number || *number < 1) {
    throw InputError(fmt::format("--set {}: expected the size of the axis '{}', a number from 1 on", setting, name));
  }
  SizeRule rule;
  rule.name = name;
  rule.number = *number;
  rule.source = {"--set", 0};
  return rule;
}

}  // namespace

Correspondence load_correspondence(const std::string& name, std::vector<std::string>& settings,
                                   const std::vector<std::string>& sources) {
  Correspondence correspondence = load_correspondence(name);
  for (const std::string& source : sources) {
    const auto sizes = model_sizes_of(source);
    for (SizeRule& rule : correspondence.sizes) {
      const auto found = sizes.find(rule.config);
      if (!rule.config.empty() && rule.number == 0 && found != sizes.end() && found->second > 0) {
        rule.number = found->second;
      }
    }
  }
  const std::set<std::string> axes = sizable_axes(correspondence);
  std::erase_if(settings, [&](const std::string& setting) {
    const auto rule = size_in(setting, axes);
    if (rule) correspondence.sizes.push_back(*rule);  // behind the others: it counts
    return rule.has_value();
  });
  return correspondence;
}

}  // namespace ttrace
