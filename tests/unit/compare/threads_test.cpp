// Several threads take the checksum of one shard on, from buffers or from pages that they release. tests/tsan runs this
// with ThreadSanitizer.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>

#include "base/error.h"
#include "support/differences.h"
#include "support/mesh_trace.h"

namespace {

using namespace ttrace;

constexpr std::int64_t kHeight = 2048, kWidth = 1024;  // 8 MiB a side: several tiles of 2 MiB of both

// A file that counts what is released of it, and what is copied from it.
class CountedFile : public test::MemoryFile {
 public:
  void release(const std::byte*, std::uint64_t size) const override { released += size; }
  bool read(const std::byte* begin, std::uint64_t size, std::byte* into) const override {
    if (!is_readable) return false;
    std::memcpy(into, begin, size);
    copied += size;
    return true;
  }
  bool explains_losses() const override { return may_stay_in_place; }
  bool is_readable = false, may_stay_in_place = false;
  mutable std::atomic<std::uint64_t> released = 0, copied = 0;
};

// A tensor that one rank holds whole, with a checksum.
struct Filed {
  CountedFile file;
  Entry entry;
  LogicalTensor tensor;

  Filed(float first, bool is_readable, bool may_stay_in_place = false) {
    file.is_readable = is_readable;
    file.may_stay_in_place = may_stay_in_place;
    std::vector<float> values;
    for (std::int64_t i = 0; i < kHeight * kWidth; ++i) values.push_back(first + static_cast<float>(i % 97));
    file.bytes = test::bytes_of(values);
    entry.shape = tensor.shape = {kHeight, kWidth};
    entry.bytes = tensor.bytes = file.bytes.size();
    entry.checksum = XXH3_64bits(file.bytes.data(), file.bytes.size());
    Piece piece;
    piece.entry = &entry;
    piece.data = file.bytes.data();
    piece.file = &file;
    piece.logical = {{0, 0}, tensor.shape};
    piece.strides = {kWidth, 1};
    test::set_pieces(tensor, {piece});
  }
};

TEST_SUITE("compare") {
  TEST_CASE("any number of threads verify one shard's checksum, keep no page of it and find the same sums") {
    std::vector<Difference> first;
    for (const bool is_readable : {false, true}) {
      CAPTURE(is_readable);
      Filed reference(1, is_readable), candidate(2, is_readable), second(3, is_readable), third(4, is_readable);
      const std::vector<TensorPair> pairs = {{&reference.tensor, &candidate.tensor},
                                             {&reference.tensor, &second.tensor},
                                             {&reference.tensor, &third.tensor}};
      const std::vector<Difference> alone = compare(pairs, {1, {}, true});
      if (first.empty()) first = alone;
      const std::uint64_t copied = reference.file.copied;
      CHECK(copied == (is_readable ? 3 * reference.file.size() : 0));
      std::uint64_t reported = 0;
      const std::vector<Difference> together =
          compare(pairs, {4, [&](std::uint64_t done, std::uint64_t) { reported = done; }, true});
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        CHECK(together[i].difference_square == first[i].difference_square);
        CHECK(together[i].along == first[i].along);
        CHECK(together[i].differing == kHeight * kWidth);
      }
      CHECK(reported == 3 * 2 * reference.file.size());
      CHECK((is_readable ? reference.file.released == 0 : reference.file.released >= reference.file.size()));
      candidate.file.bytes[candidate.file.bytes.size() / 2] ^= std::byte{1};
      CHECK_THROWS_WITH_AS(compare(pairs, {4, {}, true}), doctest::Contains("not those that were recorded"),
                           InputError);
    }
  }

  TEST_CASE("what costs few page faults is read in place, with the same sums, and no page of it is kept") {
    const Filed copied_reference(1, true), copied_candidate(2, true);
    const Filed reference(1, true, true), candidate(2, true, true);
    const std::vector<TensorPair> copied = {{&copied_reference.tensor, &copied_candidate.tensor}};
    const std::vector<TensorPair> in_place = {{&reference.tensor, &candidate.tensor}};
    for (const int threads : {1, 4}) {
      const Difference expected = compare(copied, {threads, {}, true}).front();
      const Difference found = compare(in_place, {threads, {}, true}).front();
      CHECK(found.difference_square == expected.difference_square);
      CHECK(found.along == expected.along);
      CHECK(found.worst_index == expected.worst_index);
    }
    CHECK(copied_reference.file.copied == 2 * reference.file.size());
    // A sanitizer's own memory has page faults as well.
    CHECK(reference.file.copied < copied_reference.file.copied);
    CHECK(reference.file.released + reference.file.copied >= 2 * reference.file.size());
  }
}

}  // namespace
