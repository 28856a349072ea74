// The one place where text becomes YAML: yaml-cpp parses it, and what it says is kept in about as much memory as the
// text takes: a node of yaml-cpp's own takes 450 bytes. The text is untrusted, and may be long: the tolerances of a
// model with 200,000 tensors are 160 MB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace ttrace {

struct YamlError : std::runtime_error {
  YamlError(int at_line, const std::string& what) : std::runtime_error(what), line(at_line) {}
  int line;  // from 1
};

struct YamlTape;  // a document, its values one after another

// A value of a document. The document lives as long as any of its values. An alias is the value that it stands for.
class YamlNode {
 public:
  class Iterator;
  class Items;
  class Entries;
  struct Entry;

  // Says where an entry of a mapping is: what to keep of many entries.
  struct Place {
    std::uint32_t at = 0;  // on the tape
    std::int32_t line = 0;
  };

  YamlNode() = default;  // null

  bool is_null() const;  // nothing, `~` or `null`, without quotes
  bool is_word() const;  // anything else that is no list and no mapping; "" as well, with quotes
  bool is_list() const;
  bool is_map() const;

  std::string_view word() const;      // without its quotes; empty where this is no word. It lives as the document does
  int line() const { return line_; }  // where it begins, from 1

  Items items() const;  // of a list; none where this is no list
  // Returns the entries of a mapping, in the order in which they are written; a key may be there twice. None where this
  // is no mapping.
  Entries entries() const;
  Entry entry_at(Place place) const;

 private:
  friend YamlNode parse_yaml(const std::string& text);

  YamlNode(std::shared_ptr<const YamlTape> tape, Place place)
      : tape_(std::move(tape)), at_(place.at), line_(place.line) {}

  std::shared_ptr<const YamlTape> tape_;
  std::uint32_t at_ = 0;
  int line_ = 1;
};

class YamlNode::Iterator {
 public:
  Iterator(std::shared_ptr<const YamlTape> tape, Place next) : tape_(std::move(tape)), next_(next) {}
  YamlNode operator*() const;
  Iterator& operator++();
  bool operator==(const Iterator& other) const { return next_.at == other.next_.at; }
  Place place() const { return next_; }

 private:
  std::shared_ptr<const YamlTape> tape_;
  Place next_;  // with the line of what comes before it
};

class YamlNode::Items {
 public:
  Items(Iterator begin, Iterator end) : begin_(std::move(begin)), end_(std::move(end)) {}
  Iterator begin() const { return begin_; }
  Iterator end() const { return end_; }
  bool empty() const { return begin_ == end_; }
  std::size_t size() const;  // counts them

 private:
  Iterator begin_, end_;
};

struct YamlNode::Entry {
  YamlNode key, value;
};

class YamlNode::Entries {
 public:
  class Iterator {
   public:
    explicit Iterator(YamlNode::Iterator key) : key_(std::move(key)) {}
    Entry operator*() const;
    Iterator& operator++();
    bool operator==(const Iterator& other) const { return key_ == other.key_; }
    Place place() const { return key_.place(); }

   private:
    YamlNode::Iterator key_;
  };

  explicit Entries(Items items) : items_(std::move(items)) {}
  Iterator begin() const { return Iterator(items_.begin()); }
  Iterator end() const { return Iterator(items_.end()); }
  std::size_t size() const { return items_.size() / 2; }  // counts them

 private:
  Items items_;  // a key, its value, the next key, ...
};

// Returns the one document of the text, null where there is none. Throws YamlError for what is no YAML, for a second
// document, for NUL, for aliases that make much of little, and for texts that are longer or nest deeper, and lists that
// are longer, than anybody writes.
YamlNode parse_yaml(const std::string& text);

}  // namespace ttrace
