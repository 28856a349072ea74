#include "align/sequence_alias.h"

#include <fmt/format.h>

#include <algorithm>

#include "align/open_subject.h"
#include "base/axis_names.h"

namespace ttrace {
namespace {

// Counts the tensors, split over sp by rules, that fit the reference in parts along an axis alone, or whole alone.
struct SequenceFits {
  std::int64_t only_split = 0, only_whole = 0;
};

bool splits_sequence(const AxisUse& use) {
  return use.placement == Placement::kShard && use.split.axis == kSequenceAxis;
}

SequenceFits count_sequence_fits(const Grouping& grouping, const ModelLayout& layout, const ResolvedAxis& axis) {
  SequenceFits fits;
  for (const Group& group : grouping.groups) {
    const std::vector<AxisUse>& uses = group.placement->uses;
    if (std::none_of(uses.begin(), uses.end(), splits_sequence)) continue;  // most; what follows costs more
    const Shape* reference = group.shards.empty() ? nullptr : reference_shape(layout, group.id);
    if (reference == nullptr) continue;
    TensorPlacement split = *group.placement, whole = *group.placement;
    std::erase_if(whole.uses, splits_sequence);
    if (names_axis(whole, axis.index)) continue;
    for (AxisUse& use : split.uses) {
      if (!splits_sequence(use)) continue;
      use.axis = axis.index;
      use.split.size = axis.size;
    }
    const bool fits_split = explains(group, *reference, split), fits_whole = explains(group, *reference, whole);
    fits.only_split += fits_split && !fits_whole ? 1 : 0;
    fits.only_whole += fits_whole && !fits_split ? 1 : 0;
  }
  return fits;
}

}  // namespace

Aliases aliases_by_shape(const Grouping& grouping, const RankTable& table, const ModelLayout& layout,
                         std::vector<std::string>& notes) {
  Aliases aliases = table.mesh.aliases;
  if (layout.reference == nullptr) return aliases;
  const auto said = aliases.find(kSequenceAxis);
  const bool is_said = said != aliases.end();
  const ResolvedAxis axis = resolve_axis(table.mesh, is_said ? said->second : kTensorAxis);
  const bool own_axis = !is_said && resolve_axis(table.mesh, kSequenceAxis).index >= 0;
  if (own_axis || axis.size == 1) return aliases;
  const SequenceFits fits = count_sequence_fits(grouping, layout, axis);
  const std::string& name = table.axes[static_cast<std::size_t>(axis.index)].name;
  if (is_said && fits.only_whole > 0 && fits.only_split == 0) {
    notes.push_back(
        fmt::format("{}={}: all {} tensors that rules split over it are whole on every rank; taken as a "
                    "program without sequence parallelism",
                    kSequenceAxis, name, fits.only_whole));
    aliases.erase(said);
  } else if (!is_said && fits.only_split > 0 && fits.only_whole == 0) {
    notes.push_back(
        fmt::format("{0} is no axis of the trace, but all {1} tensors that rules split over it lie in parts "
                    "on {2}; taken as {0}={2}",
                    kSequenceAxis, fits.only_split, name));
    aliases.emplace(kSequenceAxis, name);
  }
  return aliases;
}

}  // namespace ttrace
