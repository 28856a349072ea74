#include "load/yaml_document.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <unordered_map>
#include <vector>

namespace ttrace {
namespace {

// The values that all aliases of a document stand for, together. Annotations that share blocks have hundreds.
constexpr std::uint64_t kMostValuesOfAliases = 10'000;

// Looks at what the parser sees before nodes are made of it.
class Inspector : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ == 0) {
      first_ = mark.pos;
      return;
    }
    // The parser takes no step over what can begin no value, such as a comma.
    throw YAML::ParserException(mark, mark.pos == first_ ? "nothing can begin like this" : "a second YAML document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark&, YAML::anchor_t anchor) override { add_value(anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, const std::string& text) override {
    // Programs that are given such a word, and files so named, would be given the half of it.
    if (text.find('\0') != text.npos) throw YAML::ParserException(mark, "a NUL character");
    add_value(anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto size = sizes_.find(anchor);
    if (size == sizes_.end()) throw YAML::ParserException(mark, "an alias of what it is part of");
    of_aliases_ += size->second;
    values_ += size->second;
    if (of_aliases_ > kMostValuesOfAliases) {
      throw YAML::ParserException(mark, "aliases that stand for too many values, more than 10000");
    }
  }
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(anchor);
  }
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    begin(anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapEnd() override { end(); }

 private:
  struct Open {
    YAML::anchor_t anchor;
    std::uint64_t values_before;
  };

  void add_value(YAML::anchor_t anchor) {
    ++values_;
    if (anchor != 0) sizes_[anchor] = 1;
  }
  void begin(YAML::anchor_t anchor) { open_.push_back({anchor, values_++}); }
  void end() {
    if (open_.back().anchor != 0) sizes_[open_.back().anchor] = values_ - open_.back().values_before;
    open_.pop_back();
  }

  int documents_ = 0;
  int first_ = 0;                                            // where the document begins
  std::uint64_t values_ = 0;                                 // seen so far, aliases written out
  std::uint64_t of_aliases_ = 0;                             // ... of those
  std::vector<Open> open_;                                   // lists and mappings, the outermost first
  std::unordered_map<YAML::anchor_t, std::uint64_t> sizes_;  // of what has a name and is whole, in values
};

}  // namespace

YAML::Node parse_yaml(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  for (Inspector inspector; parser.HandleNextDocument(inspector);) {
  }
  return YAML::Load(text);
}

}  // namespace ttrace
