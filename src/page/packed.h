// Packs what a page carries: data, compressed and as text that a script can unpack.
#pragma once

#include <string>
#include <string_view>

namespace ttrace {

// zlib's format (RFC 1950) in base64 (RFC 4648), which a browser's DecompressionStream("deflate") reads.
std::string pack(std::string_view bytes);

}  // namespace ttrace
