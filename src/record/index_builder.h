// The index as it grows while a rank records: the three stored tables, and which identities are in them.
// Takes about 200 bytes a tensor.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "record/format.h"

namespace ttrace {

class IndexBuilder {
 public:
  const Index& index() const { return index_; }
  bool contains(const TensorId& id) const;
  void add(const Entry& entry);  // its identity is not contained

 private:
  std::uint64_t place_of_module(const std::string& module_class);

  Index index_;
  std::unordered_map<std::string, std::uint64_t> modules_;  // position in the text; few different ones
  // Identity hash -> rows with it. Names are compared in `index_`, not stored twice.
  std::unordered_multimap<std::size_t, std::uint32_t> rows_;
};

}  // namespace ttrace
