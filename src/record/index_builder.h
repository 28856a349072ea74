// The index as it grows while a rank records: the three stored tables, and which identities are in them.
// Takes about 200 bytes a tensor, and twice the text of each different mapping.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "format/format.h"

namespace ttrace {

class IndexBuilder {
 public:
  const Index& index() const { return index_; }
  bool contains(const TensorId& id) const;
  void add(const Entry& entry, std::string_view mapping);  // its identity is not contained

 private:
  std::uint64_t place_of(std::string_view text);

  Index index_;
  // Module classes and mappings, which tensors share: position in the text.
  std::unordered_map<std::string, std::uint64_t> places_;
  // Identity hash -> rows with it. Names are compared in `index_`, not stored twice.
  std::unordered_multimap<std::size_t, std::uint32_t> rows_;
};

}  // namespace ttrace
