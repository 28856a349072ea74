#include "align/locate.h"

#include <fmt/format.h>

#include <limits>

#include "align/dimension.h"
#include "align/microbatch.h"
#include "align/naming.h"
#include "align/placement.h"
#include "align/ranks.h"
#include "base/error.h"

namespace ttrace {
namespace {

// Throws InputError where the rank has no valid coordinate on the axis.
std::int64_t checked_coordinate(const Mesh& mesh, const Coordinates& coordinates, int axis) {
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
  const std::vector<std::string> axes = microbatch_axes(annotations, mesh);
  const std::vector<std::size_t> factoring = indexed_factorings_of(mesh)[placement.factoring];
  std::int64_t ranks = 1, coordinate = 0;
  bool selects = true;
  for (const std::string& name : axes) {
    const int axis = axis_index(mesh, name);
    if (axis < 0) continue;
    selects = selects && has_axis(factoring, axis) && !names_axis(placement, axis);
    ranks *= size_of_axis(mesh, name);
    coordinate = coordinate * size_of_axis(mesh, name) + checked_coordinate(mesh, coordinates, axis);
  }
  if (id.microbatch < 0 || ranks == 1 || !selects) return id;
  if (const auto order = annotations.microbatches.order; order && *order != MicrobatchOrder::kInterleaved) {
    const bool blocked = *order == MicrobatchOrder::kBlocked;
    throw InputError(fmt::format(
        "{}: with {} one rank cannot tell which of {} this is; expected interleaved ones, or "
        "one rank on '{}'",
        to_string(id), blocked ? "blocked micro-batches" : "slices of micro-batches", ranks, fmt::join(axes, "', '")));
  }
  const std::int64_t global = id.microbatch * ranks + coordinate;
  if (global > std::numeric_limits<std::int32_t>::max()) {
    throw InputError(fmt::format("{}: expected fewer than 2^31 micro-batches in all", to_string(id)));
  }
  id.microbatch = static_cast<std::int32_t>(global);
  return id;
}

}  // namespace

Location locate(const Annotations& annotations, const Mesh& mesh, const Coordinates& coordinates,
                const TensorId& local_id, const Shape& local_shape) {
  check_annotations(annotations, mesh);
  TensorId id = local_id;
  if (id.chunk != 0 && !annotations.pipeline) id.name = fmt::format("model{}.{}", id.chunk, id.name);
  id.name = tied_name(annotations, id.name).first;
  const std::string& name = id.name;
  const TensorPlacement placement = placement_by_rules(annotations, mesh, id.kind, name);
  Location location{canonical_id(annotations, mesh, coordinates, placement, id), {}, {}};
  for (const std::int64_t size : local_shape) {
    if (size < 0 || size > kMaxExtent) {
      throw InputError(fmt::format("{}: a dimension of size {}; expected 0 to 2^40", to_string(location.id), size));
    }
  }
  std::vector<std::int64_t> digits;
  for (const AxisUse& use : placement.uses) {
    if (use.placement == Placement::kShard) digits.push_back(checked_coordinate(mesh, coordinates, use.axis));
  }
  std::vector<Dimension> dimensions = dimensions_of(placement, name, local_shape, nullptr);
  try {
    for (std::size_t d = 0; d < dimensions.size(); ++d) {
      dimensions[d].sizes.assign(dimensions[d].sizes.size(), local_shape[d]);
      lay_out(dimensions[d]);
    }
  } catch (const LayoutError& error) {
    throw InputError(fmt::format("{}: {}", to_string(location.id), error.what()));
  }
  location.shape = extents_of(dimensions);
  for (PlacedBox& box : boxes_of(dimensions, digits, whole_box(local_shape))) {
    location.slices.push_back({std::move(box.local), std::move(box.logical)});
  }
  return location;
}

}  // namespace ttrace
