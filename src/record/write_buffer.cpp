#include "record/write_buffer.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace ttrace {
namespace {

// Small enough to be in the processor's cache still when it is compared, after reading.
constexpr std::size_t kReadBytes = 1 << 18;

}  // namespace

WriteBuffer::WriteBuffer(RawFile& file, std::uint64_t begin)
    : file_(file), piece_(kPieceBytes), begin_(begin), written_(begin) {}

void WriteBuffer::append(std::string_view bytes) {
  while (!bytes.empty()) {
    // A piece ends at a multiple of its size in the file, wherever it has begun.
    const std::uint64_t room = kPieceBytes - begin_ % kPieceBytes - filled_;
    const std::size_t fits = std::min<std::uint64_t>(room, bytes.size());
    std::memcpy(piece_.data() + filled_, bytes.data(), fits);
    filled_ += fits;
    bytes.remove_prefix(fits);
    if (fits == room) write_until(end());
  }
}

void WriteBuffer::append_zeros_until(std::uint64_t offset) {
  static constexpr std::array<char, 64> kZeros{};
  while (end() < offset) append({kZeros.data(), std::min<std::size_t>(kZeros.size(), offset - end())});
}

void WriteBuffer::write_until(std::uint64_t offset) {
  if (offset <= written_) return;
  file_.write_at(written_, {piece_.data() + (written_ - begin_), offset - written_});
  written_ = offset;
  if (written_ < end()) return;
  begin_ = written_;
  filled_ = 0;
}

bool WriteBuffer::holds(std::uint64_t offset, std::string_view bytes) const {
  std::vector<char> read(begin_ > offset ? std::min<std::uint64_t>({kReadBytes, bytes.size(), begin_ - offset}) : 0);
  while (offset < begin_ && !bytes.empty()) {
    const std::size_t size = std::min<std::uint64_t>({read.size(), bytes.size(), begin_ - offset});
    if (!file_.read_at(offset, read.data(), size) || std::memcmp(read.data(), bytes.data(), size) != 0) return false;
    offset += size;
    bytes.remove_prefix(size);
  }
  if (bytes.empty()) return true;
  return bytes.size() <= end() - offset &&
         std::memcmp(piece_.data() + (offset - begin_), bytes.data(), bytes.size()) == 0;
}

}  // namespace ttrace
