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
#include "files/yaml_document.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstring>
#include <istream>
#include <streambuf>
#include <unordered_map>
#include <vector>

#include "files/regular_file.h"
#include "format/format.h"

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
// The signs between which the parser finds values, from one `[` or `{` to where it is closed: till then it keeps them,
// each in about 100 bytes.
constexpr std::size_t kMostSigns = 200'000;
constexpr std::string_view kSigns = ",:?-[]{}&*!";
// The values that all aliases of a document stand for, together. Annotations that share blocks have hundreds.
constexpr std::uint64_t kMostValuesOfAliases = 10'000;

enum Type : std::uint8_t { kNull, kWord, kList, kMap, kLongList, kLongMap, kAlias };
constexpr std::uint8_t kTypeBits = 7, kNewLine = 8, kSizeShift = 4, kSizeFollows = 15;

// The extent of the contents of a list or mapping.
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

// Says what a value is, and where its text or contents are.
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

// Gives the parser a text piece by piece, and stops one that reads on and on before it says what it has seen.
class Source : public std::streambuf {
 public:
  explicit Source(const std::string& text) : text_(text) {}

  void parser_told() { signs_ = 0; }

 protected:
  int_type underflow() override {
    const std::string_view piece = std::string_view(text_).substr(at_, kPiece);
    if (piece.empty()) return traits_type::eof();
    signs_ += static_cast<std::size_t>(
        std::count_if(piece.begin(), piece.end(), [](char c) { return kSigns.find(c) != kSigns.npos; }));
    if (signs_ > kMostSigns) {
      const auto line = std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
      throw YamlError(static_cast<int>(line) + 1, fmt::format("brackets with more than {} signs", kMostSigns));
    }
    at_ += piece.size();
    char* const begin = const_cast<char*>(piece.data());  // nothing is put back that was not there
    setg(begin, begin, begin + piece.size());
    return traits_type::to_int_type(piece[0]);
  }

 private:
  static constexpr std::size_t kPiece = 2048;

  const std::string& text_;
  std::size_t at_ = 0;
  std::size_t signs_ = 0;  // since the parser last said something
};

// Makes a tape of what the parser sees.
class Writer : public YAML::EventHandler {
 public:
  Writer(std::size_t text_size, Source& source) : source_(source) {
    tape_.bytes.reserve(text_size + text_size / 2 + 1);
  }

  YamlTape take() { return std::move(tape_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ == 0) {
      first_ = mark.pos;
      return;
    }
    // The parser takes no step over what can begin no value, such as a comma.
    throw YamlError(line_of(mark), mark.pos == first_ ? "nothing can begin like this" : "a second YAML document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    begin_value(mark, anchor);
    add_head(kNull, 0, line_of(mark));
    if (anchor != 0) anchors_.at(anchor).values = 1;
  }

  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, const std::string& text) override {
    // Programs that are given such a word, and files so named, would be given the half of it.
    if (text.find('\0') != text.npos) throw YamlError(line_of(mark), "a NUL character");
    begin_value(mark, anchor);
    add_head(kWord, text.size(), line_of(mark));
    tape_.bytes += text;
    if (anchor != 0) anchors_.at(anchor).values = 1;
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t name) override {
    const Anchor& anchor = anchors_.at(name);
    if (anchor.values == 0) throw YamlError(line_of(mark), "an alias of what it is part of");
    of_aliases_ += anchor.values;
    if (of_aliases_ > kMostValuesOfAliases) {
      throw YamlError(line_of(mark),
                      fmt::format("aliases that stand for too many values, more than {}", kMostValuesOfAliases));
    }
    begin_value(mark, 0);
    values_ += anchor.values - 1;
    add_head(kAlias, 0, line_of(mark));
    append_varint(tape_.bytes, anchor.number);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(mark, kLongList, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(mark, kLongMap, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapEnd() override { end(); }

 private:
  struct Open {
    Type type;
    std::size_t head_at, extent_at;  // on the tape
    int line;
    std::size_t items;
    std::uint64_t values_before;
    YAML::anchor_t anchor;  // 0: none
  };
  struct Anchor {
    std::size_t number;    // among those of the tape
    std::uint64_t values;  // that it stands for; 0: it is not whole yet
  };

  static int line_of(const YAML::Mark& mark) { return mark.line + 1; }

  // Counts a value, and names it.
  void begin_value(const YAML::Mark& mark, YAML::anchor_t anchor) {
    source_.parser_told();
    ++values_;
    if (!open_.empty() && ++open_.back().items > kMostItems && open_.back().type == kLongList) {
      throw YamlError(line_of(mark), fmt::format("a list of more than {} values", kMostItems));
    }
    if (anchor == 0) return;
    if (tape_.anchors.size() == kMostAnchors) {
      throw YamlError(line_of(mark), fmt::format("more than {} anchors", kMostAnchors));
    }
    anchors_[anchor] = {tape_.anchors.size(), 0};
    tape_.anchors.push_back({static_cast<std::uint32_t>(tape_.bytes.size()), line_of(mark)});
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

  void begin(const YAML::Mark& mark, Type type, YAML::anchor_t anchor) {
    if (open_.size() == kMostDepth) throw YamlError(line_of(mark), fmt::format("more than {} levels", kMostDepth));
    begin_value(mark, anchor);
    const std::size_t head_at = tape_.bytes.size();
    add_head(type, 0, line_of(mark));
    open_.push_back({type, head_at, tape_.bytes.size(), line_, 0, values_ - 1, anchor});
    tape_.bytes.append(sizeof(LongExtent), '\0');
  }

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
    if (open.anchor != 0) anchors_.at(open.anchor).values = values_ - open.values_before;
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
  Source& source_;
  int documents_ = 0;
  int first_ = 0;                 // where the first document begins
  int line_ = 1;                  // of the last value on the tape
  std::uint64_t values_ = 0;      // seen so far, aliases written out
  std::uint64_t of_aliases_ = 0;  // ... of those
  std::vector<Open> open_;        // lists and mappings, the outermost first
  std::unordered_map<YAML::anchor_t, Anchor> anchors_;
};

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t' && c != '\r') || byte == 0x7f;
}

// Throws YamlError for bytes that the parser would replace, or take for the end of the text.
void require_plain_text(std::string_view text) {
  for (int line = 1; !text.empty(); ++line) {
    const std::string_view one = text.substr(0, text.find('\n'));
    if (std::any_of(one.begin(), one.end(), is_control)) throw YamlError(line, "a control character");
    if (!is_utf8(one)) throw YamlError(line, "no UTF-8");
    text.remove_prefix(std::min(one.size() + 1, text.size()));
  }
}

}  // namespace

YamlNode parse_yaml(const std::string& text) {
  if (text.size() > kMostTextBytes) throw YamlError(1, "more than 1 GiB of text");
  require_plain_text(text);
  Source source(text);
  Writer writer(text.size(), source);
  try {
    std::istream stream(&source);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(writer)) {
    }
  } catch (const YAML::Exception& error) {
    throw YamlError(error.mark.line + 1, error.msg);
  }
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
