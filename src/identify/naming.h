// The canonical names of what the ranks recorded: numbers of layers, experts and calls that are local to a rank become
// global ones, and a tied parameter's names become one.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/alignment.h"
#include "identify/experts.h"
#include "identify/microbatch.h"
#include "identify/pipeline.h"
#include "identify/placement.h"
#include "identify/ranks.h"

namespace ttrace {

// Everything that stays the same while the entries of all ranks are sorted into groups.
struct GroupingContext {
  const RankTable& table;
  const ResolvedAnnotations& annotations;
  const Pipeline& pipeline;
  const Experts& experts;
  const Microbatches& microbatches;
  const ModelLayout& layout;
};

struct CanonicalName {
  SharedValue<std::string> text;
  bool layer = false;       // it has a layer's number, now global
  bool spans = false;       // its module spans the stages
  bool expert = false;      // it belongs to one of the experts that are spread over ranks
  bool tied = false;        // it is a parameter that the program has under several names
  std::uint32_t place = 0;  // among all names, sorted; set by `sort`
  // By kind, of those that were asked for: by the rules, and the reference's shape, null where it has no such tensor.
  std::array<const TensorPlacement*, kKindLast + 1> placements{};
  std::array<const Shape*, kKindLast + 1> shapes{};
};

// The canonical names of a trace, each once.
class CanonicalNames {
 public:
  // Returns the name, and `Occurrence::name`. Names must be asked for in the order of the entries: where two local names
  // become one, the first says what it is.
  std::pair<CanonicalName*, std::size_t> find(const GroupingContext& context, const PresentRank& rank,
                                              const Entry& entry);
  // Adds a name of the reference, beside one that ranks have for the same tensor of other samples.
  void add_like(const CanonicalName& other, const std::string& text, const ModelLayout& layout);
  const CanonicalName* find(const std::string& text) const;  // null: there is none
  // Gives all names their places; `at` has the name of a place.
  void sort();
  const CanonicalName& at(std::uint32_t place) const { return *sorted_[place]; }

 private:
  std::unordered_map<std::string, CanonicalName> names_;
  std::vector<CanonicalName*> sorted_;
};

// The reference's name of the tensor, and `Occurrence::name`: n where the n-th `tied` rule renames it, else 0.
std::pair<std::string, std::size_t> tied_name(const Annotations& annotations, const std::string& name);

// Gives what the ranks say of their own names the canonical ones.
NotSeenTensors not_seen_by(const GroupingContext& context);

}  // namespace ttrace
