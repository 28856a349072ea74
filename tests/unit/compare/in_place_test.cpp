#include "compare/in_place.h"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstddef>
#include <vector>

namespace {

using namespace ttrace;

constexpr std::size_t kTile = 1 << 20;

// A range of `bytes` bytes that was read where it lies, or was copied to `buffer`.
ReadRange range_of(const std::byte* begin, std::size_t bytes, TileBuffer* buffer) {
  ReadRange range;
  range.begin = begin;
  range.end = begin + bytes;
  range.buffer = buffer;
  return range;
}

// Fresh memory, every page of which costs a fault.
struct FreshMemory {
  std::byte* data =
      static_cast<std::byte*>(::mmap(nullptr, kTile, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  FreshMemory() {
    REQUIRE(static_cast<void*>(data) != MAP_FAILED);
    ::madvise(data, kTile, MADV_NOHUGEPAGE);
  }
  ~FreshMemory() { ::munmap(data, kTile); }
  void touch() const {
    for (std::size_t i = 0; i < kTile; i += 4096) data[i] = std::byte{1};
  }
};

TEST_SUITE("compare") {
  TEST_CASE("a thread reads in place until that costs many page faults, copies for a while, and tries again") {
    TileBuffer buffer;
    const FreshMemory memory;
    memory.touch();
    InPlaceChoice choice;
    const std::vector<ReadRange> mapped = {range_of(memory.data, kTile, nullptr)};
    const std::vector<ReadRange> copied = {range_of(memory.data, kTile, &buffer)};
    for (int tile = 0; tile < 16; ++tile) {
      CHECK(choice.next() == ReadInPlace::kYes);
      choice.add(mapped);
    }
    CHECK(choice.next() == ReadInPlace::kYes);
    const FreshMemory slow;
    slow.touch();
    choice.add(mapped);
    int tiles = 0;
    for (; tiles < 100 && choice.next() == ReadInPlace::kYes; ++tiles) choice.add(mapped);
    CHECK(tiles == 7);
    for (tiles = 0; tiles < 1000 && choice.next() == ReadInPlace::kNo; ++tiles) choice.add(copied);
    CHECK(tiles == 256);
    CHECK(choice.next() == ReadInPlace::kYes);
  }
}

}  // namespace
