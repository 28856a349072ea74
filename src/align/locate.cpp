#include "ttrace/align/locate.h"

#include <fmt/format.h>

#include <limits>

#include "align/identity.h"
#include "align/placement.h"
#include "align/ranks.h"
#include "ttrace/error.h"

namespace ttrace {
namespace {

std::int64_t coordinate_on(const Mesh& mesh, const Coordinates& coordinates, int axis) {
  if (axis < 0) return 0;
  const Axis named = all_axes(mesh)[static_cast<std::size_t>(axis)];
  const auto found = coordinates.find(named.name);
  if (found == coordinates.end() || found->second < 0 || found->second >= named.size) {
    throw InputError(fmt::format("the rank has {} coordinate on axis '{}'; expected 0 to {}",
                                 found == coordinates.end() ? "no" : std::to_string(found->second), named.name,
                                 named.size - 1));
  }
  return found->second;
}

TensorId canonical_id(const Annotations& annotations, const Mesh& mesh, const Coordinates& coordinates,
                      const TensorPlacement& placement, TensorId id) {
  id.chunk = 0;
  if (placement.sum_microbatches) id.microbatch = kNoMicrobatch;
  const int axis = axis_index(mesh, annotations.microbatch_axis);
  const std::int64_t ranks = size_of_axis(mesh, annotations.microbatch_axis);
  const bool on_view = has_axis(factorings_of(mesh)[placement.view], axis);
  if (id.microbatch < 0 || ranks == 1 || !on_view || names_axis(placement, axis)) return id;
  if (annotations.microbatch_order == MicrobatchOrder::kBlocked) {
    throw InputError(
        fmt::format("{}: with blocked micro-batches one rank cannot tell which of {} this is; expected "
                    "interleaved ones, or one rank on '{}'",
                    to_string(id), ranks, annotations.microbatch_axis));
  }
  const std::int64_t global = id.microbatch * ranks + coordinate_on(mesh, coordinates, axis);
  if (global > std::numeric_limits<std::int32_t>::max()) {
    throw InputError(fmt::format("{}: expected fewer than 2^31 micro-batches in all", to_string(id)));
  }
  id.microbatch = static_cast<std::int32_t>(global);
  return id;
}

// Where this rank's part of one dimension lies; adds the dimension to the logical shape.
Stretch find_stretch(const Mesh& mesh, const Coordinates& coordinates, const std::vector<AxisUse>& uses,
                     std::int64_t size, Location& location) {
  if (size < 0 || size > kMaxExtent) {
    throw InputError(fmt::format("{}: a dimension of size {}; expected 0 to 2^40", to_string(location.id), size));
  }
  std::vector<AxisSplit> splits;
  std::size_t parts = 1;
  std::size_t part = 0;
  for (const AxisUse& use : uses) {
    splits.push_back(use.split);
    parts *= static_cast<std::size_t>(use.split.size);
    part = part * static_cast<std::size_t>(use.split.size) +
           static_cast<std::size_t>(coordinate_on(mesh, coordinates, use.axis));
  }
  const AxisLayout layout = nest(splits, std::vector<std::int64_t>(parts, size));
  const std::vector<Stretch>& stretches = layout.parts[part];
  const std::size_t dim = location.shape.size();
  location.shape.push_back(layout.extent);
  if (stretches.empty() && size == 0) return {};
  if (stretches.size() != 1 || stretches[0].size != size) {
    throw InputError(
        fmt::format("{}: dimension {} of this rank's shard is {} pieces of the logical tensor; only a "
                    "single piece is supported",
                    to_string(location.id), dim, stretches.size()));
  }
  return stretches[0];
}

}  // namespace

Location locate(const Annotations& annotations, const Mesh& mesh, const Coordinates& coordinates,
                const TensorId& local_id, const Shape& local_shape) {
  check_annotations(annotations, mesh);
  TensorId id = local_id;
  if (id.chunk != 0 && !annotations.pipeline) id.name = fmt::format("model{}.{}", id.chunk, id.name);
  id.name = tied_name(annotations, id.name).first;
  const std::string& name = id.name;
  const TensorPlacement placement = place(annotations, mesh, id.kind, name);
  Location location{canonical_id(annotations, mesh, coordinates, placement, id), {}, {}};
  std::vector<std::vector<AxisUse>> uses(local_shape.size());
  for (const AxisUse& use : placement.uses) {
    if (use.placement != Placement::kShard) continue;
    uses[dimension_of(annotations, placement, use, name, local_shape)].push_back(use);
  }
  for (std::size_t d = 0; d < local_shape.size(); ++d) {
    const Stretch stretch = find_stretch(mesh, coordinates, uses[d], local_shape[d], location);
    location.box.start.push_back(stretch.logical);
    location.box.size.push_back(local_shape[d]);
  }
  return location;
}

}  // namespace ttrace
