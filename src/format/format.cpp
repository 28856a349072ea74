#include "format/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "numeric/xxh3.h"

namespace ttrace {

Seal read_seal(std::string_view header) {
  Seal seal;
  std::memcpy(&seal, header.data() + kSealOffset, sizeof seal);
  return seal;
}

std::uint64_t seal_checksum(std::string_view header, std::string_view metadata) {
  std::string zeroed(header);
  std::memset(zeroed.data() + kSealOffset + offsetof(Seal, checksum), 0, sizeof(Seal::checksum));
  return XXH3_64bits_withSeed(metadata.data(), metadata.size(), XXH3_64bits(zeroed.data(), zeroed.size()));
}

void put_seal(std::string& header, Seal seal, std::string_view metadata) {
  std::memcpy(header.data() + kSealOffset, &seal, sizeof seal);
  seal.checksum = seal_checksum(header, metadata);
  std::memcpy(header.data() + kSealOffset, &seal, sizeof seal);
}

std::string rank_file_name(std::int32_t rank) { return fmt::format("rank-{:05}.h5", rank); }

std::string journal_file_name(std::int32_t rank) { return fmt::format("rank-{:05}.journal", rank); }

std::string_view objection_to_name(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > kMaxNameBytes) return "is longer than 4096 bytes";
  if (!is_utf8(name)) return "is not UTF-8";
  // Links in HDF5 can hold neither: "." is the group itself, and U+2215 stands for '/'.
  if (name == ".") return "is '.'";
  if (name.find("\u2215") != name.npos) return "holds U+2215";
  return {};
}

std::vector<std::int64_t> stored_shape(const Entry& entry) {
  std::vector<std::int64_t> numbers = entry.shape;
  if (!entry.sketch) return numbers;
  numbers.insert(numbers.end(), entry.sketch->edges.begin(), entry.sketch->edges.end());
  numbers.push_back(static_cast<std::int64_t>(entry.sketch->checksum));
  return numbers;
}

std::uint8_t stored_dtype(const Entry& entry) {
  auto dtype = static_cast<std::uint8_t>(entry.dtype);
  if (entry.sketch) dtype |= kSketchFlag;
  if (entry.sketch && entry.sketch->is_fingerprint) dtype |= kFingerprintFlag;
  return dtype;
}

std::size_t stored_shape_size(std::uint8_t dtype, std::uint8_t ndim) {
  return (dtype & kSketchFlag) != 0 ? std::size_t{2} * ndim + 1 : ndim;
}

void set_shape(Entry& entry, std::uint8_t dtype, SharedValue<Shape> shape, const std::int64_t* behind) {
  const bool is_sketched = (dtype & kSketchFlag) != 0;
  entry.dtype = static_cast<Dtype>(is_sketched ? dtype & ~(kSketchFlag | kFingerprintFlag) : dtype);
  entry.shape = std::move(shape);
  if (!is_sketched) return;
  const std::int64_t* const checksum = behind + entry.shape.size();
  const bool is_fingerprint = (dtype & kFingerprintFlag) != 0;
  entry.sketch = std::make_shared<const RecordedSketch>(
      RecordedSketch{Shape(behind, checksum), static_cast<std::uint64_t>(*checksum), is_fingerprint});
}

bool is_utf8(std::string_view text) {
  // Lead byte classes; the second byte's range excludes overlong forms, surrogates, beyond U+10FFFF.
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xC2 ? 0
                               : lead < 0xE0 ? 2
                               : lead < 0xF0 ? 3
                               : lead < 0xF5 ? 4
                                             : 0;
    if (length == 0 || length > text.size() - i || lead == 0) return false;
    for (std::size_t k = 1; k < length; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      const unsigned char low = k > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
      const unsigned char high = k > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
      if (byte < low || byte > high) return false;
    }
    i += length;
  }
  return true;
}

}  // namespace ttrace
