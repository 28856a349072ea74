#include "load/check_entries.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory_resource>
#include <unordered_set>

#include "base/error.h"
#include "format/format.h"
#include "numeric/xxh3.h"
#include "sketch/cells.h"

namespace ttrace {
namespace {

// Throws InputError for one entry, naming the entry and its file. Millions of entries are sound: a message is made for
// the one that is not.
class EntryChecker {
 public:
  EntryChecker(std::string_view where, std::size_t number) : where_(where), number_(number) {}

  void require(bool holds, std::string_view what, std::string_view expected) const {
    if (!holds) refuse(what, expected);
  }

  [[noreturn]] void refuse(std::string_view what, std::string_view expected) const {
    throw InputError(fmt::format("{}: tensor {} of the index: {}; {}", where_, number_, what, expected));
  }

 private:
  std::string_view where_;
  std::size_t number_;
};

template <typename Enum>
bool is_between(Enum value, std::uint8_t first, std::uint8_t last) {
  const auto number = static_cast<std::uint8_t>(value);
  return number >= first && number <= last;
}

void check_identity(const TensorId& id, const EntryChecker& checker) {
  checker.require(is_between(id.pass, 1, 2), "pass is out of range", "expected 1 or 2");
  checker.require(is_between(id.kind, kKindFirst, kKindLast), "kind is out of range", "expected 1 to 18");
  checker.require(id.iteration >= 0, "iteration is negative", "expected 0 or more");
  checker.require(id.microbatch >= kNoMicrobatch, "micro-batch is negative", "expected -1 or more");
  checker.require(id.chunk >= 0, "chunk is negative", "expected 0 or more");
  if (const std::string_view objection = objection_to_name(id.name); !objection.empty()) {
    checker.refuse(fmt::format("the name {}", objection), "expected a module path");
  }
}

// Checks the sketch of an entry whose dtype and shape are sound.
void check_sketch(const Entry& entry, const EntryChecker& checker) {
  if (!can_be_sketched(entry.dtype)) {
    checker.refuse(fmt::format("a sketch of {}", name_of(entry.dtype)), "expected fp16, bf16, fp32 or fp64");
  }
  if (const std::string objection = objection_to_edges(entry.sketch->edges, entry.shape); !objection.empty()) {
    checker.refuse(fmt::format("the edges of its cells {}", objection),
                   "expected powers of two, of at most 16384 elements in a cell");
  }
  // There are no more cells than elements, whose bytes did not overflow; but a cell has more bytes than one of them.
  const auto cells = static_cast<std::uint64_t>(element_count(cell_grid(entry.shape, entry.sketch->edges)));
  std::uint64_t bytes = 0;
  const bool overflows = __builtin_mul_overflow(cells, bytes_of_cell(entry.dtype), &bytes);
  if (overflows || entry.bytes != bytes) {
    checker.refuse(fmt::format("{} bytes for the sketch of shape {} of {} in cells of {}", entry.bytes,
                               to_string(entry.shape), name_of(entry.dtype), to_string(entry.sketch->edges)),
                   fmt::format("expected {}", bytes));
  }
}

void check_shape(const Entry& entry, const EntryChecker& checker) {
  checker.require(is_between(entry.dtype, kDtypeFirst, kDtypeLast), "dtype is out of range", "expected 1 to 12");
  if (entry.shape.size() > kMaxDims) {
    checker.refuse(fmt::format("{} dimensions", entry.shape.size()), "expected 0 to 8");
  }
  // As in the writer, a dimension of 0 counts as 1 here, so that it does not hide an absurd size of another one.
  std::int64_t bytes = size_of(entry.dtype);
  bool is_empty = false;
  for (const std::int64_t size : entry.shape) {
    if (size < 0) checker.refuse(fmt::format("a dimension is {}", size), "expected 0 or more");
    is_empty |= size == 0;
    const bool overflows = __builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes);
    if (overflows) {
      checker.refuse(fmt::format("shape {} is too large", to_string(entry.shape)), "expected less than 2^63");
    }
  }
  if (is_empty) bytes = 0;
  if (entry.sketch) return check_sketch(entry, checker);
  if (entry.bytes != static_cast<std::uint64_t>(bytes)) {
    checker.refuse(
        fmt::format("{} bytes for shape {} of {}", entry.bytes, to_string(entry.shape), name_of(entry.dtype)),
        fmt::format("expected {}", bytes));
  }
}

// `bytes` are those of the entry and of all before it, which lie inside the file, but maybe in the same place.
void check_sum(std::uint64_t bytes, std::uint64_t data_end, const EntryChecker& checker) {
  if (bytes / kMaxSharing <= data_end) return;
  checker.refuse(fmt::format("with it the tensors have {} bytes, in {} of the file", bytes, data_end),
                 fmt::format("expected at most {} times as many", kMaxSharing));
}

void check_data_range(const Entry& entry, std::uint64_t data_end, const EntryChecker& checker) {
  const bool inside =
      entry.offset >= kHeaderBytes && entry.offset <= data_end && entry.bytes <= data_end - entry.offset;
  if (!inside) {
    checker.refuse(fmt::format("{} bytes at {} lie outside the tensor data", entry.bytes, entry.offset),
                   fmt::format("expected them between {} and {}", kHeaderBytes, data_end));
  }
  if (entry.offset % kDataAlignment != 0) {
    checker.refuse(fmt::format("its data is at {}", entry.offset),
                   fmt::format("expected a multiple of {}", kDataAlignment));
  }
}

}  // namespace

void check_disjoint(const std::vector<Entry>& entries, std::string_view where) {
  std::vector<std::size_t> by_offset;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].bytes > 0) by_offset.push_back(i);
  }
  const auto lies_before = [&](std::size_t a, std::size_t b) { return entries[a].offset < entries[b].offset; };
  if (!std::is_sorted(by_offset.begin(), by_offset.end(), lies_before)) {  // as recorders write them
    std::stable_sort(by_offset.begin(), by_offset.end(), lies_before);
  }
  for (std::size_t i = 1; i < by_offset.size(); ++i) {
    const Entry &before = entries[by_offset[i - 1]], &entry = entries[by_offset[i]];
    const EntryChecker checker(where, by_offset[i]);
    if (before.offset == entry.offset && before.bytes == entry.bytes) {
      if (before.checksum == entry.checksum) continue;
      checker.refuse(fmt::format("its checksum is not that of tensor {}, which has the same bytes", by_offset[i - 1]),
                     "expected one checksum");
    }
    if (before.offset + before.bytes <= entry.offset) continue;
    checker.refuse(fmt::format("its data overlaps that of tensor {}", by_offset[i - 1]),
                   "expected bytes of its own, or all of them in common");
  }
}

namespace {

struct IdentityHash {
  std::size_t operator()(const TensorId* id) const {
    const std::uint64_t numbers[] = {static_cast<std::uint32_t>(id->iteration),
                                     static_cast<std::uint32_t>(id->microbatch), static_cast<std::uint32_t>(id->chunk),
                                     static_cast<std::uint64_t>(id->pass), static_cast<std::uint64_t>(id->kind)};
    return XXH3_64bits_withSeed(id->name.data(), id->name.size(), XXH3_64bits(numbers, sizeof numbers));
  }
};

struct IdentityEqual {
  bool operator()(const TensorId* a, const TensorId* b) const { return *a == *b; }
};

void check_unique(const std::vector<Entry>& entries, std::string_view where) {
  std::pmr::monotonic_buffer_resource memory;
  std::pmr::unordered_set<const TensorId*, IdentityHash, IdentityEqual> seen(entries.size(), &memory);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (seen.insert(&entries[i].id).second) continue;
    EntryChecker(where, i).refuse(fmt::format("{} is there twice", to_string(entries[i].id)),
                                  "expected each identity once");
  }
}

}  // namespace

void check_entries(const std::vector<Entry>& entries, std::uint64_t data_end, std::string_view where) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const EntryChecker checker(where, i);
    check_identity(entries[i].id, checker);
    check_shape(entries[i], checker);
    check_data_range(entries[i], data_end, checker);
    bytes += entries[i].bytes;
    check_sum(bytes, data_end, checker);
    checker.require(entries[i].module_class.size() <= kMaxNameBytes && is_utf8(entries[i].module_class.get()),
                    "the module class is malformed", "expected UTF-8 of at most 4096 bytes");
    checker.require(i == 0 || entries[i - 1].order < entries[i].order, "its order is not after its predecessor's",
                    "expected an increasing order");
  }
  check_disjoint(entries, where);
  check_unique(entries, where);
}

}  // namespace ttrace
