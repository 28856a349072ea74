#include "correspond/made_of.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "base/describe.h"

namespace ttrace {
namespace {

void sort_by_place(std::vector<Piece>& pieces) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.replica, a.term, a.logical.start) < std::tie(b.replica, b.term, b.logical.start);
  });
}

}  // namespace

FittedPattern fit(IndexPattern pattern, std::size_t from, const AxisSizes& sizes, const PlacedTensors& sources,
                  const PlacedTensors& targets) {
  FittedPattern fitted;
  fitted.how = std::make_shared<Rearrangement>();
  fitted.how->pattern = std::move(pattern);
  fitted.how->from = from;
  SizeEquations equations(sizes);
  AxisSizes numbered;
  for (const auto& [side, tensors] : {std::pair(1 - from, &targets), std::pair(from, &sources)}) {
    for (const auto& [place, tensor] : *tensors) {
      fitted.fits = equations.add(fitted.how->pattern.sides[side][place.tensor], tensor->shape) && fitted.fits;
      for (const auto& [axis, value] : place.fixed) numbered[axis] = std::max(numbered[axis], value + 1);
    }
  }
  fitted.fits = fitted.fits && equations.solve();
  fitted.how->ellipsis = equations.ellipsis();
  fitted.how->sizes = equations.sizes();
  for (const auto& [axis, size] : numbered) {
    const auto [found, is_new] = fitted.how->sizes.emplace(axis, size);
    fitted.fits = fitted.fits && found->second == size;
  }
  return fitted;
}

std::string unknown_axis(const Rearrangement& how) {
  for (std::size_t side : {0, 1}) {
    for (const PatternPart& part : how.pattern.parts(side)) {
      for (const std::string& axis : part.axes) {
        if (!how.sizes.contains(axis)) return axis;
      }
    }
  }
  return "";
}

std::vector<Source> sources_of(const Rearrangement& how, const PatternTensor& target, const PlacedTensors& sources) {
  const auto from = how.pattern.parts(how.from), to = how.pattern.parts(1 - how.from);
  std::set<std::size_t> needed;
  for (std::size_t i = 0; i < std::max(from.size(), to.size()); ++i) {
    if (to[std::min(i, to.size() - 1)].tensor == target.tensor) {
      needed.insert(from[std::min(i, from.size() - 1)].tensor);
    }
  }
  std::vector<Source> found;
  std::map<std::size_t, std::int64_t> counts;
  for (const auto& [place, tensor] : sources) {
    if (!needed.contains(place.tensor)) continue;
    found.push_back({tensor, place});
    ++counts[place.tensor];
  }
  const bool copies = how.pattern.copies() && from.size() > 1;
  if (copies) return found;
  for (const std::size_t tensor : needed) {
    std::int64_t expected = 1;
    for (const auto& [place, source] : sources) {
      if (place.tensor != tensor) continue;
      for (const auto& [axis, value] : place.fixed) expected = std::max(expected, how.sizes.at(axis));
    }
    if (counts[tensor] != expected) return {};
  }
  return found;
}

Shape shape_of_made(const Rearrangement& how, const PatternTensor& target) {
  return *shape_of(how.pattern.sides[1 - how.from][target.tensor], how.ellipsis, how.sizes);
}

LogicalTensor made_of(const TensorId& id, std::shared_ptr<const Rearrangement> how, const std::vector<Source>& sources,
                      const PatternTensor& target) {
  const Shape shape = shape_of_made(*how, target);
  LogicalTensor tensor = *sources.front().tensor;
  tensor.doubt = placing_of(tensor);  // names the tensor as it was recorded
  if (tensor.doubt.starts_with("; ")) tensor.doubt.erase(0, 2);
  tensor.id = id;
  tensor.shape = shape;
  tensor.bytes = 0;
  std::vector<std::pair<std::function<std::vector<Piece>()>, PatternTensor>> makers;
  for (const Source& source : sources) {
    const std::int64_t elements = std::max<std::int64_t>(element_count(source.tensor->shape), 1);
    const double share = std::min(1.0, static_cast<double>(element_count(shape)) / static_cast<double>(elements));
    tensor.bytes += static_cast<std::uint64_t>(share * static_cast<double>(source.tensor->bytes));
    tensor.sketched |= source.tensor->sketched;
    tensor.order = std::min(tensor.order, source.tensor->order);
    makers.emplace_back(source.tensor->pieces, source.place);
  }
  const bool copies = how->pattern.copies() && how->pattern.parts(how->from).size() > 1;
  tensor.pieces = [how = std::move(how), makers = std::move(makers), target, copies] {
    std::vector<Piece> pieces;
    for (const auto& [make, place] : makers) {
      std::int32_t replicas = 0;
      for (const Piece& piece : pieces) replicas = copies ? std::max(replicas, piece.replica + 1) : 0;
      for (Piece& piece : rearranged(*how, place, make(), target)) {
        piece.replica += replicas;
        pieces.push_back(std::move(piece));
      }
    }
    sort_by_place(pieces);
    return pieces;
  };
  return tensor;
}

void add_copies(LogicalTensor& into, LogicalTensor more) {
  into.pieces = [first = std::move(into.pieces), second = std::move(more.pieces)] {
    std::vector<Piece> pieces = first();
    std::int32_t replicas = 0;
    for (const Piece& piece : pieces) replicas = std::max(replicas, piece.replica + 1);
    for (Piece& piece : second()) {
      piece.replica += replicas;
      pieces.push_back(std::move(piece));
    }
    return pieces;
  };
  into.bytes += more.bytes;
  into.sketched |= more.sketched;
  into.order = std::min(into.order, more.order);
}

bool keeps_rows(const Rearrangement& how) {
  for (const auto& side : how.pattern.sides) {
    for (const TensorPattern& tensor : side) {
      const bool ellipsis_first = tensor.ellipsis && *tensor.ellipsis == 0;
      const TensorPattern& other = how.pattern.sides[0].front();
      if (ellipsis_first != (other.ellipsis && *other.ellipsis == 0)) return false;
      if (ellipsis_first) continue;
      if (tensor.dims.empty() || tensor.dims[0].size() != 1 || !tensor.dims[0][0].sum.empty()) return false;
      if (other.dims.empty() || tensor.dims[0][0].name != other.dims[0][0].name) return false;
    }
  }
  return true;
}

}  // namespace ttrace
