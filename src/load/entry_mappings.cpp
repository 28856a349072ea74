#include "load/entry_mappings.h"

#include <fmt/format.h>

#include <map>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "format/mapping_text.h"

namespace ttrace {
namespace {

// Parses each different text once.
class MappingCache {
 public:
  std::shared_ptr<const RecordedMapping> parsed(std::string_view text) {
    auto& by_address = by_address_[{text.data(), text.size()}];
    if (by_address) return by_address;
    auto& by_text = by_text_[text];
    if (!by_text) by_text = std::make_shared<const RecordedMapping>(parse_mapping(text));
    return by_address = by_text;
  }

 private:
  using Shared = std::shared_ptr<const RecordedMapping>;
  // The lookup by address comes first: a long text that a million entries share is hashed once.
  std::map<std::pair<const char*, std::size_t>, Shared> by_address_;
  std::unordered_map<std::string_view, Shared> by_text_;
};

}  // namespace

void set_mappings(std::vector<Entry>& entries, const std::vector<std::string_view>& texts, std::string_view where) {
  MappingCache cache;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (texts[i].empty()) continue;
    try {
      entries[i].mapping = cache.parsed(texts[i]);
      const std::string objection = objection_to_mapping(*entries[i].mapping, entries[i].shape);
      if (!objection.empty()) throw InputError(objection);
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: tensor {} of the index: {}", where, i, error.what()));
    }
  }
}

}  // namespace ttrace
