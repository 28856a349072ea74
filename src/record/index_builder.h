// Builds the index while a rank records: the three stored tables, and a lookup of the identities in them. It takes
// about 200 bytes a tensor, and twice the text of each different mapping.
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
  void add(const Entry& entry, std::string_view mapping);  // the entry's identity must not be contained
  // Says where the tensor of a row lies, when that is known.
  void place(std::size_t row, std::uint64_t offset, std::uint64_t checksum);
  void drop_from(std::size_t row);  // nothing may be added any more

 private:
  // Returns the position of `text` in the text table, after adding it where it is new.
  std::uint64_t store_text(std::string_view text);

  // Lets a text be looked for without a copy of it.
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  Index index_;
  // Module classes and mappings, which many tensors share -> position in the text table.
  std::unordered_map<std::string, std::uint64_t, TextHash, std::equal_to<>> text_positions_;
  // Identity hash -> rows with it. Names are compared in `index_`, not stored twice.
  std::unordered_multimap<std::size_t, std::uint32_t> rows_;
};

}  // namespace ttrace
