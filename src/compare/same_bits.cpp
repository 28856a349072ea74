#include "compare/same_bits.h"

#include <optional>

#include "sketch/fingerprint.h"

namespace ttrace {
namespace {

// XXH3-64 of the tensor's own bytes.
std::optional<std::uint64_t> checksum_of(const Entry& entry) {
  if (!entry.sketch) return entry.checksum;
  if (entry.sketch->is_fingerprint) return std::nullopt;
  return entry.sketch->checksum;
}

std::optional<std::uint64_t> fingerprint_of(const Entry& entry, const std::byte* stored) {
  if (!entry.sketch) return fingerprint(stored, entry.bytes);
  if (!entry.sketch->is_fingerprint) return std::nullopt;
  return entry.sketch->checksum;
}

SameBits are_same(std::optional<std::uint64_t> a, std::optional<std::uint64_t> b) {
  if (!a || !b) return SameBits::kUnknown;
  return *a == *b ? SameBits::kYes : SameBits::kNo;
}

}  // namespace

SameBits have_same_bits(const Entry& a, const std::byte* stored_a, const Entry& b, const std::byte* stored_b) {
  const SameBits by_checksum = are_same(checksum_of(a), checksum_of(b));
  if (by_checksum != SameBits::kUnknown) return by_checksum;
  return are_same(fingerprint_of(a, stored_a), fingerprint_of(b, stored_b));
}

}  // namespace ttrace
