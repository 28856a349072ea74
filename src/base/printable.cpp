#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

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
  // What has no width makes two names look the same.
  const bool joins = (value >= 0x200b && value <= 0x200d) || (value >= 0x2060 && value <= 0x2065) || value == 0xfeff;
  const bool fills = value == 0xad || value == 0x34f || value == 0x115f || value == 0x1160 || value == 0x3164 ||
                     value == 0xffa0 || (value >= 0x180b && value <= 0x180f) || (value >= 0x206a && value <= 0x206f);
  const bool varies = (value >= 0xfe00 && value <= 0xfe0f) || (value >= 0xe0000 && value <= 0xe01ff);
  const bool ends_line = value == 0x2028 || value == 0x2029;
  return !control && !redirects && !marks && !ends_line && !joins && !fills && !varies && (value & 0xfffe) != 0xfffe;
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
