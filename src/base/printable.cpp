#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/trace.h"

namespace ttrace {
namespace {

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 0;  // 0: no UTF-8
};

// The code point that `text` begins with.
CodePoint decode(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  std::uint32_t value = lead & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3f);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value < 0xe000;
  if (value < kLeast[bytes] || value > 0x10ffff || surrogate) return {};
  return {value, bytes};
}

bool is_printable(std::uint32_t value) {
  const bool control = value < 0x20 || (value >= 0x7f && value < 0xa0);
  const bool redirects = (value >= 0x202a && value <= 0x202e) || (value >= 0x2066 && value <= 0x2069);
  const bool marks = value == 0x61c || value == 0x200e || value == 0x200f;  // of a direction
  // Take no room, so that two names look the same: joiners, fillers, selectors of a variant, tags.
  constexpr std::pair<std::uint32_t, std::uint32_t> kUnseen[] = {
      {0xad, 0xad},     {0x34f, 0x34f},     {0x115f, 0x1160},   {0x17b4, 0x17b5},  {0x180b, 0x180f}, {0x200b, 0x200d},
      {0x2060, 0x2065}, {0x206a, 0x206f},   {0x3164, 0x3164},   {0xfe00, 0xfe0f},  {0xfeff, 0xfeff}, {0xffa0, 0xffa0},
      {0xfff0, 0xfffb}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}};
  const bool unseen = std::any_of(std::begin(kUnseen), std::end(kUnseen),
                                  [&](const auto& range) { return value >= range.first && value <= range.second; });
  const bool ends_line = value == 0x2028 || value == 0x2029;
  return !control && !redirects && !marks && !unseen && !ends_line && (value & 0xfffe) != 0xfffe;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const CodePoint point = decode(text);
    const std::size_t bytes = std::max<std::size_t>(point.bytes, 1);
    if (point.bytes > 0 && is_printable(point.value)) {
      result += text.substr(0, bytes);
    } else {
      for (const char c : text.substr(0, bytes)) result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    text.remove_prefix(bytes);
  }
  return result;
}

}  // namespace ttrace
