// Brings the bytes that a tile needs into a buffer that stays in cache, or leaves them where they are mapped, as
// `in_place.h` chooses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "merge/overlay.h"

namespace ttrace {

// A buffer for the bytes of one tile.
class TileBuffer {
 public:
  // Returns room for `bytes` bytes; what it held before is gone.
  std::byte* take(std::size_t bytes);

  // As long as somebody holds a buffer, it is left as it is.
  void hold() { holders_.fetch_add(1, std::memory_order_relaxed); }
  void let_go() { holders_.fetch_sub(1, std::memory_order_release); }
  bool is_held() const { return holders_.load(std::memory_order_acquire) > 0; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t capacity_ = 0;
  std::atomic<int> holders_ = 0;
};

// The buffers of one thread.
class TileBuffers {
 public:
  // Returns one that nobody holds. Throws std::logic_error where all are held.
  TileBuffer& next();
  // True where another one is free beside `used`: that one may be held.
  bool may_hold(const TileBuffer& used) const;

 private:
  static constexpr std::size_t kMost = 8;
  std::vector<std::unique_ptr<TileBuffer>> buffers_;
};

// Bytes of one recorded tensor that a tile reads, without a gap.
struct ReadRange {
  const MappedFile* file = nullptr;
  const Entry* entry = nullptr;
  const std::byte *begin = nullptr, *end = nullptr;  // in the mapping
  const std::byte* bytes = nullptr;                  // where they are read: at `begin`, or in a buffer
  TileBuffer* buffer = nullptr;                      // that one; null: the mapping

  bool is_mapped() const { return buffer == nullptr; }
};

enum class ReadInPlace : bool { kNo, kYes };

// Unless `in_place`, copies into `buffer` what `boxes` need of files, where that lies close together, and points their
// terms there. Returns what they need, by address; memory that belongs to no file is left out.
std::vector<ReadRange> fetch(std::span<OverlayBox*> boxes, TileBuffer& buffer, ReadInPlace in_place);

}  // namespace ttrace
