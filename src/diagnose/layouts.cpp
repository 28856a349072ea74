#include <numeric>

#include "diagnose/hypothesis.h"

namespace ttrace {
namespace {

// Returns the position in memory of each element of a row-major tensor of this shape once dimensions `a` and `b` are
// swapped.
std::vector<std::size_t> positions_when_swapped(const Shape& shape, std::size_t a, std::size_t b) {
  Shape swapped = shape;
  std::swap(swapped[a], swapped[b]);
  std::vector<std::size_t> positions(static_cast<std::size_t>(element_count(shape)));
  Shape index(shape.size(), 0);
  for (std::size_t& position : positions) {
    Shape other = index;
    std::swap(other[a], other[b]);
    std::int64_t at = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) at = at * swapped[d] + other[d];
    position = static_cast<std::size_t>(at);
    for (std::size_t d = shape.size(); d-- > 0 && ++index[d] == shape[d];) index[d] = 0;
  }
  return positions;
}

// Reads each part's elements in another order of dimensions `a` and `b` than they were written in. Returns nothing
// where a part has elements outside of the logical tensor (padding), or where the order makes no difference.
std::optional<Values> reread(const Values& values, const std::vector<LocalTensor>& parts, std::size_t a, std::size_t b,
                             bool written_swapped) {
  Values result = values;
  bool changes = false;
  for (const LocalTensor& part : parts) {
    if (part.shape.size() <= b) return std::nullopt;
    changes = changes || (part.shape[a] > 1 && part.shape[b] > 1);
    const std::vector<std::size_t> swapped = positions_when_swapped(part.shape, a, b);
    for (std::size_t i = 0; i < swapped.size(); ++i) {
      const std::int64_t to = part.positions[written_swapped ? i : swapped[i]];
      const std::int64_t from = part.positions[written_swapped ? swapped[i] : i];
      if (to < 0 || from < 0) return std::nullopt;
      result[static_cast<std::size_t>(to)] = values[static_cast<std::size_t>(from)];
    }
  }
  if (!changes) return std::nullopt;
  return result;
}

}  // namespace

std::optional<Diagnosis> try_readings(const Values& values, const Shape& shape, const std::vector<LocalTensor>& parts,
                                      const Reading& test) {
  LocalTensor whole{-1, shape, std::vector<std::int64_t>(values.size())};
  std::iota(whole.positions.begin(), whole.positions.end(), 0);
  const std::vector<LocalTensor> scopes[] = {{std::move(whole)}, parts.size() > 1 ? parts : std::vector<LocalTensor>()};
  for (const std::vector<LocalTensor>& scope : scopes) {
    for (std::size_t a = 0; a < shape.size(); ++a) {
      for (std::size_t b = a + 1; b < shape.size(); ++b) {
        for (const bool written_swapped : {false, true}) {
          const std::optional<Values> read = reread(values, scope, a, b, written_swapped);
          if (!read) continue;
          const std::string how = fmt::format("as if dimensions {} and {}{} were swapped in memory", a, b,
                                              scope.size() > 1 ? " of each rank's part" : "");
          if (auto found = test(*read, how)) return found;
        }
      }
    }
  }
  return std::nullopt;
}

std::optional<Diagnosis> reinterpreted(const Suspect& suspect) {
  return try_readings(suspect.reference_values, suspect.reference.shape, suspect.parts,
                      [&](const Values& values, const std::string& how) {
                        return suspect.explained_by(Cause::kReinterpreted, values, "the elements lie " + how);
                      });
}

}  // namespace ttrace
