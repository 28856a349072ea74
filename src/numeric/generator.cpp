#include "numeric/generator.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "numeric/philox.h"
#include "numeric/xxh3.h"

namespace ttrace {
namespace {

using Key = std::array<std::uint32_t, 2>;

Key philox_key_of(std::uint64_t seed, std::string_view key) {
  const std::uint64_t hash = XXH3_64bits_withSeed(key.data(), key.size(), seed);
  return {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)};
}

std::array<std::uint32_t, 4> block_at(Key key, std::uint64_t block) {
  return philox4x32_10({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}, key);
}

// Uses the upper 24 bits, so that every value and the subtraction are exact in fp32.
float uniform_of(std::uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-23f - 1.0f; }

// Writes the values of `count` consecutive logical indices, from `index` on.
void fill_run(Key key, std::uint64_t index, std::int64_t count, float* out) {
  const std::uint64_t end = index + static_cast<std::uint64_t>(count);
  while (index < end) {
    const auto block = block_at(key, index / 4);
    const std::uint64_t stop = std::min(end, (index / 4 + 1) * 4);
    for (; index < stop; ++index) *out++ = uniform_of(block[index % 4]);
  }
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  // Multipliers and key increments (golden ratio, sqrt(3) - 1) are the paper's.
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = 0xD2511F53ull * counter[0];
    const std::uint64_t product1 = 0xCD9E8D57ull * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

void fill_uniform(std::uint64_t seed, std::string_view key, std::span<const std::int64_t> shape,
                  std::span<const std::int64_t> start, std::span<const std::int64_t> size, float* out) {
  assert(shape.size() == start.size() && shape.size() == size.size());
  if (std::find(size.begin(), size.end(), 0) != size.end()) return;
  const Key philox_key = philox_key_of(seed, key);
  const std::size_t dims = shape.size();
  const std::int64_t run = dims == 0 ? 1 : size[dims - 1];
  // Each row of the box is one run of consecutive indices. `row` counts over all dimensions but the last.
  std::vector<std::int64_t> row(dims == 0 ? 0 : dims - 1, 0);
  while (true) {
    std::uint64_t index = 0;
    for (std::size_t dim = 0; dim < dims; ++dim) {
      const std::int64_t at = start[dim] + (dim < row.size() ? row[dim] : 0);
      index = index * static_cast<std::uint64_t>(shape[dim]) + static_cast<std::uint64_t>(at);
    }
    fill_run(philox_key, index, run, out);
    out += run;
    std::size_t dim = row.size();
    while (dim > 0 && ++row[dim - 1] == size[dim - 1]) row[--dim] = 0;
    if (dim == 0) return;
  }
}

}  // namespace ttrace
