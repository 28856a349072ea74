// A document is kept as a tape: its values in the order of the text, each a byte that says what it is, and what belongs
// to it. Values of a list, and keys and values of a mapping, stand behind it.
//
//   byte        bits 0 to 2: the type; bit 3: it begins in another line than the value before it; bits 4 to 7: a size
//   lines       where bit 3 is set: how many further down, a varint (7 bits a byte, the last has no bit 7)
//   word        its size in bytes, 15 where a varint follows that is the size; its text
//   list, map   the size of its contents in bytes; 15 where it follows, as long as Extent, with the lines from its own
//               to that of its last value
//   alias       a varint: the number of the anchor
//
// A value of one character takes two bytes, as it does in the text with what separates it from the next. No value takes
// more than one and a half times its text.
#include "load/yaml_document.h"

#include <fmt/format.h>
#include <yaml.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <unordered_map>
#include <vector>

#include "load/regular_file.h"

namespace ttrace {

struct YamlTape {
  std::string bytes;
  std::vector<YamlNode::Place> anchors;  // by number
};

namespace {

using Place = YamlNode::Place;

constexpr std::size_t kMostDepth = 100;      // annotations have eight levels
constexpr std::size_t kMostItems = 100'000;  // of a list. Mappings have names for keys, and one for each tensor
constexpr std::size_t kMostAnchors = 10'000;
// The values that all aliases of a document stand for, together. Annotations that share blocks have hundreds.
constexpr std::uint64_t kMostValuesOfAliases = 10'000;

enum Type : std::uint8_t { kNull, kWord, kList, kMap, kLongList, kLongMap, kAlias };
constexpr std::uint8_t kTypeBits = 7, kNewLine = 8, kSizeShift = 4, kSizeFollows = 15;

// Of the contents of a list or mapping.
template <class Integer>
struct Extent {
  Integer size, lines;
};
using ShortExtent = Extent<std::uint8_t>;
using LongExtent = Extent<std::uint32_t>;

void append_varint(std::string& tape, std::uint64_t number) {
  for (; number >= 128; number >>= 7) tape += static_cast<char>(128 | (number & 127));
  tape += static_cast<char>(number);
}

std::uint32_t read_varint(const std::string& tape, std::uint32_t& at) {
  std::uint32_t number = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<std::uint8_t>(tape[at++]);
    number |= static_cast<std::uint32_t>(byte & 127) << shift;
    if (byte < 128) return number;
  }
}

// What a value is, and where its text or contents are.
struct Head {
  Type type = kNull;
  std::uint32_t begin = 0;
  std::uint32_t size = 0;     // in bytes; of an alias the number of its anchor
  std::int32_t lines = 0;     // down to this value, from the one before it
  std::int32_t contents = 0;  // ... and from this one to its last; -1 where it is not written
};

template <class Integer>
void read_extent(const std::string& tape, Head& head) {
  Extent<Integer> extent;
  std::memcpy(&extent, tape.data() + head.begin, sizeof extent);
  head.begin += sizeof extent;
  head.size = extent.size;
  head.contents = static_cast<std::int32_t>(extent.lines);
}

Head read_head(const std::string& tape, std::uint32_t at) {
  const auto byte = static_cast<std::uint8_t>(tape[at++]);
  Head head{static_cast<Type>(byte & kTypeBits), 0, static_cast<std::uint32_t>(byte >> kSizeShift)};
  if (byte & kNewLine) head.lines = static_cast<std::int32_t>(read_varint(tape, at));
  head.begin = at;
  if (head.type == kLongList || head.type == kLongMap) {
    head.type = head.type == kLongList ? kList : kMap;
    read_extent<std::uint32_t>(tape, head);
  } else if (head.type == kList || head.type == kMap) {
    head.contents = -1;
    if (head.size == kSizeFollows) read_extent<std::uint8_t>(tape, head);
  } else if (head.type == kAlias || (head.type == kWord && head.size == kSizeFollows)) {
    head.size = read_varint(tape, head.begin);
  }
  return head;
}

// The place behind a value.
Place after(const std::string& tape, Place place) {
  const Head head = read_head(tape, place.at);
  place.line += head.lines;
  if (head.type == kAlias) return {head.begin, place.line};
  const std::uint32_t end = head.begin + head.size;
  if (head.contents >= 0) return {end, place.line + head.contents};
  for (place.at = head.begin; place.at < end;) place = after(tape, place);  // contents of fewer than 15 bytes
  return place;
}

// Makes a tape of what the parser sees.
class Writer {
 public:
  explicit Writer(std::size_t text_size) { tape_.bytes.reserve(text_size + text_size / 2 + 1); }

  void add_word(const yaml_event_t& event) {
    const auto& scalar = event.data.scalar;
    const std::string_view text(reinterpret_cast<const char*>(scalar.value), scalar.length);
    const int line = line_of(event);
    // Programs that are given such a word, and files so named, would be given the half of it.
    if (text.find('\0') != text.npos) throw YamlError(line, "a NUL character");
    const bool plain = scalar.style == YAML_PLAIN_SCALAR_STYLE && scalar.tag == nullptr;
    const bool null = plain && (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL");
    begin_value(line, scalar.anchor);
    add_head(null ? kNull : kWord, null ? 0 : text.size(), line);
    if (!null) tape_.bytes += text;
    if (scalar.anchor != nullptr) anchors_.at(name_of(scalar.anchor)).values = 1;
  }

  void add_alias(const yaml_event_t& event) {
    const int line = line_of(event);
    const auto anchor = anchors_.find(name_of(event.data.alias.anchor));
    if (anchor == anchors_.end()) throw YamlError(line, "an alias of nothing that comes before it");
    if (anchor->second.values == 0) throw YamlError(line, "an alias of what it is part of");
    of_aliases_ += anchor->second.values;
    if (of_aliases_ > kMostValuesOfAliases) {
      throw YamlError(line, fmt::format("aliases that stand for too many values, more than {}", kMostValuesOfAliases));
    }
    begin_value(line, nullptr);
    values_ += anchor->second.values - 1;
    add_head(kAlias, 0, line);
    append_varint(tape_.bytes, anchor->second.number);
  }

  void begin_list(const yaml_event_t& event) { begin(event, kLongList, event.data.sequence_start.anchor); }
  void begin_map(const yaml_event_t& event) { begin(event, kLongMap, event.data.mapping_start.anchor); }

  void end() {
    const Open open = open_.back();
    open_.pop_back();
    std::string& bytes = tape_.bytes;
    const std::size_t begin = open.extent_at + sizeof(LongExtent), size = bytes.size() - begin;
    const auto lines = static_cast<std::uint32_t>(line_ - open.line);
    const LongExtent extent{static_cast<std::uint32_t>(size), lines};
    std::memcpy(bytes.data() + open.extent_at, &extent, sizeof extent);
    if (size < kSizeFollows) {
      shorten(open, static_cast<std::uint8_t>(size), {});
    } else if (size <= 255 && lines <= 255) {
      const char short_extent[]{static_cast<char>(size), static_cast<char>(lines)};
      shorten(open, kSizeFollows, {short_extent, sizeof short_extent});
    }
    if (open.anchor != 0) anchors_.at(names_[open.anchor - 1]).values = values_ - open.values_before;
  }

  YamlTape take() { return std::move(tape_); }

 private:
  struct Open {
    Type type;
    std::size_t head_at, extent_at;  // on the tape
    int line;
    std::size_t items;
    std::uint64_t values_before;
    std::size_t anchor;  // its number from 1; 0: none
  };
  struct Anchor {
    std::size_t number;    // of the last that has the name
    std::uint64_t values;  // that it stands for; 0: it is not whole yet
  };

  static std::string name_of(const yaml_char_t* name) { return reinterpret_cast<const char*>(name); }
  static int line_of(const yaml_event_t& event) { return static_cast<int>(event.start_mark.line) + 1; }

  // Counts a value, and names it.
  void begin_value(int line, const yaml_char_t* anchor) {
    ++values_;
    if (!open_.empty() && ++open_.back().items > kMostItems && open_.back().type == kLongList) {
      throw YamlError(line, fmt::format("a list of more than {} values", kMostItems));
    }
    if (anchor == nullptr) return;
    if (names_.size() == kMostAnchors) throw YamlError(line, fmt::format("more than {} anchors", kMostAnchors));
    anchors_[name_of(anchor)] = {names_.size(), 0};
    names_.push_back(name_of(anchor));
    tape_.anchors.push_back({static_cast<std::uint32_t>(tape_.bytes.size()), line});
  }

  void add_head(Type type, std::size_t size, int line) {
    const int down = std::max(line - line_, 0);
    line_ += down;
    const bool follows = size >= kSizeFollows;
    const std::size_t size_bits = follows ? kSizeFollows : size;
    tape_.bytes += static_cast<char>(type | (down > 0 ? kNewLine : 0) | (size_bits << kSizeShift));
    if (down > 0) append_varint(tape_.bytes, static_cast<std::uint64_t>(down));
    if (follows) append_varint(tape_.bytes, size);
  }

  void begin(const yaml_event_t& event, Type type, const yaml_char_t* anchor) {
    const int line = line_of(event);
    if (open_.size() == kMostDepth) throw YamlError(line, fmt::format("more than {} levels", kMostDepth));
    begin_value(line, anchor);
    const std::size_t head_at = tape_.bytes.size();
    add_head(type, 0, line);
    open_.push_back({type, head_at, tape_.bytes.size(), line_, 0, values_ - 1, anchor == nullptr ? 0 : names_.size()});
    tape_.bytes.append(sizeof(LongExtent), '\0');
  }

  // Writes an extent that takes less room, and moves the contents up to it.
  void shorten(const Open& open, std::uint8_t size_bits, std::string_view extent) {
    const Type type = open.type == kLongList ? kList : kMap;
    const auto flags = static_cast<std::uint8_t>(tape_.bytes[open.head_at]) & kNewLine;
    tape_.bytes[open.head_at] = static_cast<char>(type | flags | (size_bits << kSizeShift));
    tape_.bytes.replace(open.extent_at, sizeof(LongExtent), extent);
    const auto moved = static_cast<std::uint32_t>(sizeof(LongExtent) - extent.size());
    for (auto anchor = tape_.anchors.rbegin(); anchor != tape_.anchors.rend() && anchor->at > open.extent_at;
         ++anchor) {
      anchor->at -= moved;
    }
  }

  YamlTape tape_;
  int line_ = 1;                    // of the last value on the tape
  std::uint64_t values_ = 0;        // seen so far, aliases written out
  std::uint64_t of_aliases_ = 0;    // ... of those
  std::vector<Open> open_;          // lists and mappings, the outermost first
  std::vector<std::string> names_;  // of anchors, by number
  std::unordered_map<std::string, Anchor> anchors_;
};

// libyaml's parser of a text.
class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {
    if (yaml_parser_initialize(&parser_) == 0) throw std::bad_alloc();
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  ~Parser() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  // The next event, until the one after it.
  const yaml_event_t& next() {
    yaml_event_delete(&event_);
    if (yaml_parser_parse(&parser_, &event_) == 0) fail();
    return event_;
  }

 private:
  [[noreturn]] void fail() const {
    if (parser_.error == YAML_MEMORY_ERROR) throw std::bad_alloc();
    if (parser_.error == YAML_READER_ERROR) throw YamlError(line_at(parser_.problem_offset), parser_.problem);
    std::string what = parser_.problem;
    const auto begins = static_cast<int>(parser_.context_mark.line) + 1;
    // The parser finds the end of a text in the line behind it.
    const int line = std::min(static_cast<int>(parser_.problem_mark.line) + 1, line_at(text_.size() - 1));
    if (parser_.context != nullptr) what += fmt::format(" {}", parser_.context);
    if (parser_.context != nullptr && begins < line) what += fmt::format(" that begins in line {}", begins);
    throw YamlError(line, what);
  }

  int line_at(std::size_t byte) const {
    const auto end = text_.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text_.size()));
    return 1 + static_cast<int>(std::count(text_.begin(), end, '\n'));
  }

  const std::string& text_;
  yaml_parser_t parser_{};
  yaml_event_t event_{};
};

void write(Parser& parser, Writer& writer) {
  for (int documents = 0;;) {
    const yaml_event_t& event = parser.next();
    switch (event.type) {
      case YAML_STREAM_END_EVENT:
        return;
      case YAML_DOCUMENT_START_EVENT:
        if (documents++ > 0) throw YamlError(static_cast<int>(event.start_mark.line) + 1, "a second YAML document");
        break;
      case YAML_SCALAR_EVENT:
        writer.add_word(event);
        break;
      case YAML_ALIAS_EVENT:
        writer.add_alias(event);
        break;
      case YAML_SEQUENCE_START_EVENT:
        writer.begin_list(event);
        break;
      case YAML_MAPPING_START_EVENT:
        writer.begin_map(event);
        break;
      case YAML_SEQUENCE_END_EVENT:
      case YAML_MAPPING_END_EVENT:
        writer.end();
        break;
      default:
        break;
    }
  }
}

}  // namespace

YamlNode parse_yaml(const std::string& text) {
  if (text.size() > kMostTextBytes) throw YamlError(1, "more than 1 GiB of text");
  Parser parser(text);
  Writer writer(text.size());
  write(parser, writer);
  YamlTape tape = writer.take();
  if (tape.bytes.empty()) return {};
  return *YamlNode::Iterator(std::make_shared<const YamlTape>(std::move(tape)), {0, 1});
}

YamlNode YamlNode::Iterator::operator*() const {
  const Head head = read_head(tape_->bytes, next_.at);
  if (head.type == kAlias) return {tape_, tape_->anchors[head.size]};
  return {tape_, {next_.at, next_.line + head.lines}};
}

YamlNode::Iterator& YamlNode::Iterator::operator++() {
  next_ = after(tape_->bytes, next_);
  return *this;
}

std::size_t YamlNode::Items::size() const {
  std::size_t size = 0;
  for (Iterator at = begin_; at != end_; ++at) ++size;
  return size;
}

YamlNode::Entry YamlNode::Entries::Iterator::operator*() const {
  YamlNode::Iterator value = key_;
  return {*key_, *++value};
}

YamlNode::Entries::Iterator& YamlNode::Entries::Iterator::operator++() {
  ++ ++key_;
  return *this;
}

bool YamlNode::is_null() const { return tape_ == nullptr || read_head(tape_->bytes, at_).type == kNull; }
bool YamlNode::is_word() const { return tape_ != nullptr && read_head(tape_->bytes, at_).type == kWord; }
bool YamlNode::is_list() const { return tape_ != nullptr && read_head(tape_->bytes, at_).type == kList; }
bool YamlNode::is_map() const { return tape_ != nullptr && read_head(tape_->bytes, at_).type == kMap; }

std::string_view YamlNode::word() const {
  if (!is_word()) return {};
  const Head head = read_head(tape_->bytes, at_);
  return std::string_view(tape_->bytes).substr(head.begin, head.size);
}

YamlNode::Items YamlNode::items() const {
  if (!is_list()) return {{tape_, {}}, {tape_, {}}};
  const Head head = read_head(tape_->bytes, at_);
  return {{tape_, {head.begin, line_}}, {tape_, {head.begin + head.size, line_}}};
}

YamlNode::Entries YamlNode::entries() const {
  if (!is_map()) return Entries({{tape_, {}}, {tape_, {}}});
  const Head head = read_head(tape_->bytes, at_);
  return Entries({{tape_, {head.begin, line_}}, {tape_, {head.begin + head.size, line_}}});
}

YamlNode::Entry YamlNode::entry_at(Place place) const { return *Entries::Iterator({tape_, place}); }

}  // namespace ttrace
