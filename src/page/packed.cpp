#include "page/packed.h"

#include <zlib.h>

#include <cstdint>
#include <stdexcept>

namespace ttrace {
namespace {

std::string deflate(std::string_view bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string packed(size, '\0');
  const auto* source = reinterpret_cast<const Bytef*>(bytes.data());
  const int result = compress2(reinterpret_cast<Bytef*>(packed.data()), &size, source, static_cast<uLong>(bytes.size()),
                               Z_DEFAULT_COMPRESSION);
  if (result != Z_OK) throw std::runtime_error("zlib could not compress a page's data");
  packed.resize(size);
  return packed;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      group = group << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      text += i + j <= bytes.size() ? kDigits[group >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

}  // namespace

std::string pack(std::string_view bytes) { return base64(deflate(bytes)); }

}  // namespace ttrace
