// Finds the tensors of both sides that correspond to each other, by the rules' names.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/alignment.h"
#include "correspond/correspondence.h"
#include "correspond/rearrange.h"

namespace ttrace {

// Names what one rule makes correspond, of one layer, micro-batch and kind.
struct GroupKey {
  std::size_t rule = 0;
  Captures captures;  // those of both sides
  TensorId id;        // its name is what the names of both sides end with: a call, or a parameter's own name
  friend auto operator<=>(const GroupKey&, const GroupKey&) = default;
};

// A tensor's place in a group.
struct Claim {
  GroupKey key;
  PatternTensor place;
};

// The rules as one side has them.
class SideNames {
 public:
  SideNames(const Correspondence& correspondence, std::size_t side, const Trace& trace)
      : correspondence_(correspondence), side_(side), first_members_(trace) {}

  // Returns the claims of all rules that name the tensor, and whose pattern for it is not `none`.
  std::vector<Claim> claims(const TensorId& id) const;

  // The name that a place in a group has on this side. `place.fixed` has all of the side's own axes.
  std::string name_of(const GroupKey& key, const PatternTensor& place) const;

  // True where some rule names the tensor.
  bool is_named(const TensorId& id) const { return !claims(id).empty(); }

  // True for a scalar of which the file says nothing: it corresponds to the one of the same name.
  bool goes_by_name(const TensorId& id) const;

  std::size_t side() const { return side_; }

 private:
  struct Known {
    std::vector<Claim> claims;
    bool is_spoken_of = false;  // by a rule whose pattern is `none`, too
  };
  const Known& known(const TensorId& id) const;
  Known find_known(const TensorId& id) const;

  const Correspondence& correspondence_;
  std::size_t side_;
  FirstMembers first_members_;
  mutable std::map<std::pair<std::string, Kind>, Known> known_;  // every micro-batch has the same
};

// The pattern between the two sides of a group; nothing where they do not correspond.
std::optional<IndexPattern> pattern_of(const Correspondence& correspondence, const GroupKey& key);

struct CounterpartGroup {
  std::map<std::pair<std::size_t, AxisSizes>, TensorId> sides[2];  // by place
};
using CounterpartGroups = std::map<GroupKey, CounterpartGroup>;

void add_to_groups(const SideNames& names, const Alignment& alignment, CounterpartGroups& groups);

}  // namespace ttrace
