#include "compare/same_bits.h"

#include <doctest/doctest.h>

#include <array>
#include <memory>

#include "numeric/xxh3.h"
#include "sketch/fingerprint.h"

namespace ttrace {
namespace {

using Bytes = std::array<std::byte, 64>;

Entry whole(const Bytes& bytes) {
  Entry entry;
  entry.bytes = bytes.size();
  entry.checksum = XXH3_64bits(bytes.data(), bytes.size());
  return entry;
}

Entry sketch(const Bytes& bytes, bool is_fingerprint) {
  Entry entry;
  const std::uint64_t checksum =
      is_fingerprint ? fingerprint(bytes.data(), bytes.size()) : XXH3_64bits(bytes.data(), bytes.size());
  entry.sketch = std::make_shared<const RecordedSketch>(RecordedSketch{{}, checksum, is_fingerprint});
  return entry;
}

}  // namespace

TEST_SUITE("compare") {
  TEST_CASE("tensors have the same bits or not, however they were recorded") {
    const Bytes a{}, b{std::byte{1}};
    const auto ask = [](const Entry& one, const Bytes& bytes, const Entry& other, const Bytes& of_other) {
      return std::pair(have_same_bits(one, bytes.data(), other, of_other.data()),
                       have_same_bits(other, of_other.data(), one, bytes.data()));
    };
    const auto both = [](SameBits answer) { return std::pair(answer, answer); };
    CHECK(ask(whole(a), a, whole(a), a) == both(SameBits::kYes));
    CHECK(ask(whole(a), a, whole(b), b) == both(SameBits::kNo));
    for (const bool is_fingerprint : {false, true}) {
      CAPTURE(is_fingerprint);
      const Bytes stored{std::byte{7}};  // cells, which are none of the tensor's bytes
      CHECK(ask(whole(a), a, sketch(a, is_fingerprint), stored) == both(SameBits::kYes));
      CHECK(ask(whole(a), a, sketch(b, is_fingerprint), stored) == both(SameBits::kNo));
      CHECK(ask(sketch(a, is_fingerprint), stored, sketch(a, is_fingerprint), stored) == both(SameBits::kYes));
      CHECK(ask(sketch(a, is_fingerprint), stored, sketch(b, is_fingerprint), stored) == both(SameBits::kNo));
    }
    CHECK(ask(sketch(a, false), a, sketch(a, true), a) == both(SameBits::kUnknown));
    CHECK(ask(sketch(a, false), a, sketch(b, true), b) == both(SameBits::kUnknown));
  }
}

}  // namespace ttrace
