// The checksums of what is compared are verified, however the shards lie in the tensor and whoever reads them.
#include <doctest/doctest.h>

#include <string>

#include "compare/compare.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

constexpr std::int64_t kRows = 4096, kColumns = 1024;  // 16 MiB: several tiles, many boxes a tile where columns are cut

std::vector<float> rows_and_columns(std::int64_t rows, std::int64_t columns, std::int64_t first_column) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j)
      values.push_back(static_cast<float>((i * kColumns + first_column + j) % 97));
  }
  return values;
}

// The text of the error, or that of none.
std::string error_of_comparing(const Trace& reference, const Trace& candidate, int threads) {
  const Annotations rules = annotations("fc: {output: {tp_dim: 1}}");
  const Alignment a = align(reference, rules, {}), b = align(candidate, rules, layout_of(a));
  const TensorPair pair{&a.tensors.begin()->second, &b.tensors.begin()->second};
  try {
    const std::vector<Difference> differences = compare({&pair, 1}, {threads, {}});
    return differences[0].differing == 0 ? "none" : "none, and values differ";
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace

TEST_SUITE_BEGIN("compare");

TEST_CASE("one bit that flipped anywhere in a shard is found, by any number of threads") {
  const TensorId id = tensor_id(Kind::kOutput, "fc", 0);
  Trace reference = mesh_trace("", 1);
  add_tensor(reference, 0, id, {kRows, kColumns}, rows_and_columns(kRows, kColumns, 0));
  for (const int threads : {1, 3}) {
    CAPTURE(threads);
    Trace candidate = mesh_trace("tp=2", 2);
    for (const std::size_t rank : {0, 1}) {
      add_tensor(candidate, rank, id, {kRows, kColumns / 2},
                 rows_and_columns(kRows, kColumns / 2, static_cast<std::int64_t>(rank) * kColumns / 2));
    }
    CHECK(error_of_comparing(reference, candidate, threads) == "none");
    auto& bytes =
        std::const_pointer_cast<MemoryFile>(std::static_pointer_cast<const MemoryFile>(candidate.ranks[1].file))->bytes;
    for (const std::size_t at : {std::size_t{0}, bytes.size() / 3, bytes.size() - 1}) {
      bytes[at] ^= std::byte{1};
      CHECK(error_of_comparing(reference, candidate, threads)
                .starts_with(
                    ": fc output, iteration 0, micro-batch 0: its bytes are not those that were recorded: checksum "));
      bytes[at] ^= std::byte{1};
    }
  }
}

TEST_SUITE_END();
