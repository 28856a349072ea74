#include "diagnose/unlike_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "base/axis_names.h"
#include "base/describe.h"
#include "base/lookup.h"
#include "base/mesh.h"
#include "identify/given_inputs.h"

namespace ttrace {
namespace {

// True where ranks that differ in their place along tp alone hold other parts.
bool is_split_along_tensor_axis(const LogicalTensor& tensor, const Mesh& mesh) {
  std::map<Coordinates, const Box> parts;  // by the place along the other axes
  const std::vector<Piece> pieces = tensor.pieces();
  return std::ranges::any_of(pieces, [&](const Piece& piece) {
    Coordinates others = coordinates_of(mesh, piece.rank);
    if (others.erase(kTensorAxis) == 0) return false;
    const auto [part, is_first] = parts.emplace(std::move(others), piece.logical);
    return !is_first && part->second != piece.logical;
  });
}

// A parameter of which the ranks along tp have parts, as was said of it; null where there is none.
const LogicalTensor* split_parameter(const Evidence& evidence) {
  const auto found = std::ranges::find_if(evidence.candidate.tensors, [&](const auto& item) {
    const auto& [id, tensor] = item;
    return id.kind == Kind::kParam && tensor.annotated && is_split_along_tensor_axis(tensor, evidence.mesh);
  });
  return found == evidence.candidate.tensors.end() ? nullptr : &found->second;
}

bool lies_along_tensor_axis(const LogicalTensor& tensor) {
  return std::ranges::any_of(tensor.deduced, [](const AxisPlacement& axis) {
    return axis.axis == kTensorAxis && axis.placement == Placement::kShard && axis.dim == 0;
  });
}

bool is_given_to_model(const TensorId& id) {
  return id.kind == Kind::kInput && id.pass == Pass::kForward && is_of_whole_model(id);
}

}  // namespace

bool is_dealt_along_tensor_axis(const TensorId& input, const Evidence& evidence) {
  if (!is_given_to_model(input)) return false;
  const LogicalTensor* tensor = find_tensor(evidence.candidate, input);
  return tensor != nullptr && lies_along_tensor_axis(*tensor) && split_parameter(evidence) != nullptr;
}

bool is_copied_along_tensor_axis(const TensorId& input, const Evidence& evidence) {
  if (!is_given_to_model(input)) return false;
  const LogicalTensor* tensor = find_tensor(evidence.candidate, input);
  return tensor != nullptr && !is_split_along_tensor_axis(*tensor, evidence.mesh) &&
         split_parameter(evidence) != nullptr;
}

std::string describe_samples_along_tensor_axis(const Evidence& evidence, std::int32_t iteration) {
  const auto given = std::ranges::find_if(evidence.candidate.tensors, [&](const auto& item) {
    return item.first.iteration == iteration && is_given_to_model(item.first) && lies_along_tensor_axis(item.second);
  });
  if (given == evidence.candidate.tensors.end()) return "";
  const LogicalTensor* parameter = split_parameter(evidence);
  if (parameter == nullptr) return "";
  return fmt::format(
      "the ranks along tp were given other samples each ({}), and have parts of the same parameters ({}): what they "
      "compute of one sample is put together with what others compute of another",
      printable(given->first.name.get()), printable(parameter->id.name.get()));
}

}  // namespace ttrace
