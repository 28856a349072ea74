#include "annotate/shared_parameters.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace ttrace {
namespace {

// The values of one parameter: iteration, before the step or after it, and the checksum of each part.
using RecordedValues = std::set<std::tuple<std::int32_t, Kind, std::uint64_t>>;

struct Parameter {
  RecordedValues values;
  Shape shape;
  std::uint64_t order = 0;
};

// True where a step has changed it: what is never updated may be equal by chance, as the copies of a layer.
bool is_updated(const RecordedValues& values) {
  std::map<Kind, std::set<std::uint64_t>> checksums;
  for (const auto& [iteration, kind, checksum] : values) checksums[kind].insert(checksum);
  return !checksums[Kind::kParamAfter].empty() && checksums[Kind::kParamAfter] != checksums[Kind::kParam];
}

std::map<std::string, Parameter> parameters_of(const Alignment& aligned) {
  std::map<std::string, Parameter> parameters;
  for (const auto& [id, tensor] : aligned.tensors) {
    if (id.kind != Kind::kParam && id.kind != Kind::kParamAfter) continue;
    Parameter& parameter = parameters[id.name];
    parameter.shape = tensor.shape;
    parameter.order = parameter.values.empty() ? tensor.order : std::min(parameter.order, tensor.order);
    for (const Piece& piece : tensor.pieces()) {
      parameter.values.emplace(id.iteration, id.kind, piece.entry->checksum);
    }
  }
  std::erase_if(parameters, [](const auto& item) { return !is_updated(item.second.values); });
  return parameters;
}

bool has_parameter(const Alignment& reference, const std::string& name) {
  return std::any_of(reference.tensors.begin(), reference.tensors.end(),
                     [&](const auto& item) { return item.first.kind == Kind::kParam && item.first.name == name; });
}

}  // namespace

std::vector<SharedParameter> find_shared_parameters(const Alignment& aligned, const Alignment* reference) {
  std::map<std::pair<Shape, RecordedValues>, std::vector<std::pair<std::uint64_t, std::string>>> alike;
  for (const auto& [name, parameter] : parameters_of(aligned)) {
    alike[{parameter.shape, parameter.values}].emplace_back(parameter.order, name);
  }
  std::vector<SharedParameter> shared;
  for (auto& [values, names] : alike) {
    std::sort(names.begin(), names.end());
    const auto known = std::stable_partition(names.begin(), names.end(), [&](const auto& item) {
      return reference != nullptr && has_parameter(*reference, item.second);
    });
    if (reference != nullptr && known == names.begin()) continue;
    const auto others = reference == nullptr ? names.begin() + 1 : known;
    for (auto other = others; other != names.end(); ++other) shared.push_back({other->second, names[0].second});
  }
  return shared;
}

}  // namespace ttrace
