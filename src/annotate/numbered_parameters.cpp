#include "annotate/numbered_parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

using Tensors = std::vector<const LogicalTensor*>;

struct Numbered {
  std::string name;          // with `{e}` for the number
  std::int64_t number = -1;  // -1: there is none
};

// Numbers the tensor by the first number in which its name differs from another of `parts`.
Numbered numbered(const LogicalTensor& tensor, const Tensors& parts) {
  const std::string& name = tensor.id.name;
  for (auto number = number_in(name); number; number = number_in(name, number->end)) {
    for (const LogicalTensor* other : parts) {
      const auto same = number_in(other->id.name, number->begin - 1);  // from its dot
      if (!same || same->value == number->value || same->begin != number->begin) continue;
      return {name.substr(0, number->begin) + "{e}" + name.substr(number->end), number->value};
    }
  }
  return {name, -1};
}

PlacedTensors placed(const std::vector<std::string>& names, const Tensors& parts) {
  PlacedTensors result;
  for (std::size_t k = 0; k < names.size(); ++k) {
    for (const LogicalTensor* part : parts) {
      const Numbered one = numbered(*part, parts);
      if (one.name == names[k]) result.emplace_back(PatternTensor{k, {{"e", one.number}}}, part);
    }
  }
  return result;
}

// Returns how the parts of so many names may lie in the whole.
std::vector<std::string> patterns_of(std::size_t names, std::size_t side_of_whole) {
  const std::string rows =
      names == 1 ? "a" : fmt::format("({})", fmt::join(std::vector(names, std::string("a")), " + "));
  const std::string part = fmt::format("{}", fmt::join(std::vector(names, std::string("a b")), ", "));
  std::vector<std::string> patterns;
  for (const std::string& whole :
       {fmt::format("e {} b", rows), fmt::format("e b {}", rows), fmt::format("(e {}) b", rows)}) {
    patterns.push_back(side_of_whole == 1 ? fmt::format("{} -> {}", part, whole)
                                          : fmt::format("{} -> {}", whole, part));
  }
  return patterns;
}

}  // namespace

std::optional<ParameterMatch> match_numbered(const Tensors& parts, const LogicalTensor& whole,
                                             std::size_t side_of_whole, std::optional<Dtype> dtype) {
  std::set<std::string> different;
  for (const LogicalTensor* part : parts) {
    const Numbered one = numbered(*part, parts);
    if (one.number < 0) return std::nullopt;
    different.insert(one.name);
  }
  std::vector<std::string> names(different.begin(), different.end());
  const PlacedTensors of_whole = {{PatternTensor{}, &whole}};
  do {  // in the order of the whole; there are few names
    ParameterMatch match;
    match.names[side_of_whole] = {whole.id.name};
    match.names[1 - side_of_whole] = names;
    const PlacedTensors of_parts = placed(names, parts);
    match.tensors = side_of_whole == 1 ? PatternSides{of_parts, of_whole} : PatternSides{of_whole, of_parts};
    for (std::string& pattern : patterns_of(names.size(), side_of_whole)) {
      if (distance_by(pattern, {}, match.tensors, dtype) != 0.0) continue;
      match.pattern = std::move(pattern);
      return match;
    }
  } while (names.size() <= 4 && std::next_permutation(names.begin(), names.end()));
  return std::nullopt;
}

}  // namespace ttrace
