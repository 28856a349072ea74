#include "annotate/subjects.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/mesh.h"
#include "base/tensor_name.h"
#include "identify/naming.h"

namespace ttrace {
namespace {

// True for what one stage hands to another. Of a module that holds the pipeline's layers, only the first stage's inputs
// and the last one's outputs flow into and out of the whole module.
bool flows_between_stages(const Trace& trace, const RankTrace& rank, const Entry& entry, const Annotations& settings) {
  if (!settings.pipeline || !is_floating(entry.dtype)) return false;
  const std::string_view module = TensorName(entry.id.name).path;
  const std::string& layers = settings.pipeline->layers;
  const bool spans = layers == module || is_inside(layers, module);
  const auto stage = rank.coordinates.find(settings.pipeline->axis);
  if (!spans || stage == rank.coordinates.end()) return false;
  const Kind kind = entry.id.kind;
  if (kind == Kind::kInput || kind == Kind::kGradInput) return stage->second != 0;
  const std::int64_t last = size_of_axis(trace.mesh, settings.pipeline->axis) - 1;
  return (kind == Kind::kOutput || kind == Kind::kGradOutput) && stage->second != last;
}

}  // namespace

std::string pattern_of(const std::string& name) {
  const TensorName parts(name);
  if (parts.path.empty()) return name;  // `#1` and `:x`, which are all there is to tell the tensor by
  return with_any_number(fmt::format("{}{}", parts.path, parts.member));
}

void ShapeRange::add(const Shape& shape) {
  if (!known_) {
    smallest = largest = shape;
    known_ = true;
    return;
  }
  ragged = ragged || shape.size() != largest.size();
  if (ragged) return;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    smallest[d] = std::min(smallest[d], shape[d]);
    largest[d] = std::max(largest[d], shape[d]);
  }
}

Subjects unplaced_subjects(const Trace& trace, const Annotations& settings) {
  Subjects subjects;
  for (const RankTrace& rank : trace.ranks) {
    for (const Entry& entry : rank.entries) {
      if (entry.mapping && entry.mapping->axes) continue;
      if (flows_between_stages(trace, rank, entry, settings)) continue;
      if (rule_for(settings, entry.id.kind, entry.id.name) != nullptr) continue;
      const auto [found, is_new] =
          subjects.try_emplace({pattern_of(tied_name(settings, entry.id.name).first), entry.id.kind});
      Subject& subject = found->second;
      if (is_new) {
        subject.dtype = entry.dtype;
        subject.order = entry.order;
      }
      subject.order = std::min(subject.order, entry.order);
      subject.in_microbatches = subject.in_microbatches || entry.id.microbatch >= 0;
      subject.local.add(entry.shape);
      subject.shards.push_back({&rank, &entry});
    }
  }
  return subjects;
}

}  // namespace ttrace
