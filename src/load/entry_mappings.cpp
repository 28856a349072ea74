#include "load/entry_mappings.h"

#include <fmt/format.h>

#include <map>
#include <unordered_map>
#include <utility>

#include "format/mapping_text.h"
#include "ttrace/error.h"

namespace ttrace {
namespace {

class Mappings {
 public:
  std::shared_ptr<const RecordedMapping> parsed(std::string_view text) {
    auto& at_place = by_place_[{text.data(), text.size()}];
    if (at_place) return at_place;
    auto& of_text = by_text_[text];
    if (!of_text) of_text = std::make_shared<const RecordedMapping>(parse_mapping(text));
    return at_place = of_text;
  }

 private:
  using Shared = std::shared_ptr<const RecordedMapping>;
  // A long text that a million entries name is not even looked at again.
  std::map<std::pair<const char*, std::size_t>, Shared> by_place_;
  std::unordered_map<std::string_view, Shared> by_text_;
};

}  // namespace

void set_mappings(std::vector<Entry>& entries, const std::vector<std::string_view>& texts, std::string_view where) {
  Mappings mappings;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (texts[i].empty()) continue;
    try {
      entries[i].mapping = mappings.parsed(texts[i]);
      const std::string objection = objection_to_mapping(*entries[i].mapping, entries[i].shape);
      if (!objection.empty()) throw InputError(objection);
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: tensor {} of the index: {}", where, i, error.what()));
    }
  }
}

}  // namespace ttrace
