#include "align/locate.h"

#include <fmt/format.h>

#include <limits>

#include "align/dimension.h"
#include "base/error.h"
#include "identify/check_annotations.h"
#include "identify/naming.h"
#include "identify/placement.h"
#include "identify/ranks.h"

namespace ttrace {
namespace {

// Throws InputError where the rank has no valid coordinate on the axis.
std::int64_t checked_coordinate(const ResolvedAnnotations& annotations, const Coordinates& coordinates, int axis) {
  if (axis < 0) return 0;
  const Axis& named = annotations.axes[static_cast<std::size_t>(axis)];
  const auto found = coordinates.find(named.name);
  if (found == coordinates.end() || found->second < 0 || found->second >= named.size) {
    throw InputError(fmt::format("the rank has {} coordinate on axis '{}'; expected 0 to {}",
                                 found == coordinates.end() ? "no" : std::to_string(found->second), named.name,
                                 named.size - 1));
  }
  return found->second;
}

[[noreturn]] void refuse_order(const ResolvedAnnotations& annotations, const TensorId& id, std::int64_t ranks) {
  const bool blocked = annotations.said.microbatches.order == MicrobatchOrder::kBlocked;
  std::vector<std::string> axes;
  for (const ResolvedAxis& axis : annotations.microbatch_axes) axes.push_back(axis.name);
  throw InputError(fmt::format(
      "{}: with {} one rank cannot tell which of {} this is; expected interleaved ones, or "
      "one rank on '{}'",
      to_string(id), blocked ? "blocked micro-batches" : "slices of micro-batches", ranks, fmt::join(axes, "', '")));
}

TensorId canonical_id(const ResolvedAnnotations& annotations, const Coordinates& coordinates,
                      const TensorPlacement& placement, TensorId id) {
  id.chunk = 0;
  if (placement.sum_microbatches) id.microbatch = kNoMicrobatch;
  const std::vector<std::size_t>& factoring = annotations.factorings[placement.factoring];
  std::int64_t ranks = 1, coordinate = 0;
  bool selects = true;
  for (const ResolvedAxis& axis : annotations.microbatch_axes) {
    if (axis.index < 0) continue;
    selects = selects && has_axis(factoring, axis.index) && !names_axis(placement, axis.index);
    ranks *= axis.size;
    coordinate = coordinate * axis.size + checked_coordinate(annotations, coordinates, axis.index);
  }
  if (id.microbatch < 0 || ranks == 1 || !selects) return id;
  const auto order = annotations.said.microbatches.order;
  if (order && *order != MicrobatchOrder::kInterleaved) refuse_order(annotations, id, ranks);
  const std::int64_t global = id.microbatch * ranks + coordinate;
  if (global > std::numeric_limits<std::int32_t>::max()) {
    throw InputError(fmt::format("{}: expected fewer than 2^31 micro-batches in all", to_string(id)));
  }
  id.microbatch = static_cast<std::int32_t>(global);
  return id;
}

}  // namespace

Location locate(const Annotations& given, const Mesh& mesh, const Coordinates& coordinates, const TensorId& local_id,
                const Shape& local_shape) {
  const ResolvedAnnotations annotations = resolve(given, mesh);
  check_annotations(annotations);
  TensorId id = local_id;
  if (id.chunk != 0 && !given.pipeline) id.name = fmt::format("model{}.{}", id.chunk, id.name);
  id.name = tied_name(given, id.name).first;
  const std::string& name = id.name;
  const TensorPlacement placement = placement_by_rules(annotations, id.kind, name);
  Location location{canonical_id(annotations, coordinates, placement, id), {}, {}};
  for (const std::int64_t size : local_shape) {
    if (size < 0 || size > kMaxExtent) {
      throw InputError(fmt::format("{}: a dimension of size {}; expected 0 to 2^40", to_string(location.id), size));
    }
  }
  std::vector<std::int64_t> digits;
  for (const AxisUse& use : placement.uses) {
    if (use.placement == Placement::kShard) digits.push_back(checked_coordinate(annotations, coordinates, use.axis));
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
