// Builds the index while a rank records: the three stored tables, and a lookup of the identities in them. It takes
// about 200 bytes a tensor, and twice the text of each different mapping, in a few large blocks: small ones that stay
// would lie between the program's tensors, whose memory could not be used again for larger ones.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

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

  // A slot of a table with open addressing: a row looks for a free slot from its hash on. No row is taken out.
  struct Slot {
    std::uint32_t row_and_one = 0;  // 0: free
    std::uint32_t hash = 0;         // the upper half
  };
  void insert(std::uint64_t hash, std::size_t row);
  void make_room();

  std::vector<Slot> slots_;  // a power of two of them, or none; at most half are taken
};

}  // namespace ttrace
