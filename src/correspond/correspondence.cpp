#include "correspond/correspondence.h"

#include <algorithm>
#include <iterator>

namespace ttrace {
namespace {

std::set<std::string> captures_of(const std::vector<NamePattern>& names) {
  std::set<std::string> all;
  for (const NamePattern& name : names) all.merge(name.captures());
  return all;
}

}  // namespace

std::set<std::string> CorrespondenceRule::own_axes(std::size_t side) const {
  const std::set<std::string> own = captures_of(names[side]), others = captures_of(names[1 - side]);
  std::set<std::string> axes;
  std::set_difference(own.begin(), own.end(), others.begin(), others.end(), std::inserter(axes, axes.end()));
  return axes;
}

}  // namespace ttrace
