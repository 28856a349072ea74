#include "record/gather.h"

#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <vector>

using namespace ttrace;

namespace {

// Gathers one element after the other, in the slow and obvious way.
template <typename T>
std::string elements(const T* data, const Shape& shape, const Shape& strides) {
  std::string bytes;
  Shape at(shape.size(), 0);
  for (std::int64_t n = element_count(shape); n > 0; --n) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < at.size(); ++i) offset += at[i] * strides[i];
    bytes.append(reinterpret_cast<const char*>(data + offset), sizeof(T));
    for (std::size_t i = at.size(); i > 0 && ++at[i - 1] == shape[i - 1]; --i) at[i - 1] = 0;
  }
  return bytes;
}

template <typename T>
std::vector<T> counting(std::size_t n) {
  std::vector<T> values(n);
  std::iota(values.begin(), values.end(), T{});
  return values;
}

struct Gathered {
  std::string bytes;
  int blocks = 0;
};

Gathered gathered(const void* data, Dtype dtype, const Shape& shape, const Shape& strides) {
  Gathered result;
  for_each_block({data, dtype, shape, strides}, [&](std::string_view block) {
    result.bytes += block;
    ++result.blocks;
  });
  return result;
}

}  // namespace

TEST_SUITE("record") {
  TEST_CASE("A tensor's elements are recorded in row-major order, whatever its strides") {
    const auto values = counting<float>(4096);
    const float* data = values.data();
    const auto check = [&](const float* first, const Shape& shape, const Shape& strides) {
      CHECK(gathered(first, Dtype::kFloat32, shape, strides).bytes == elements(first, shape, strides));
    };
    check(data, {6, 10}, {1, 6});           // transposed
    check(data, {3, 4, 5}, {100, 7, 1});    // a slice in every dimension
    check(data, {4, 5}, {0, 1});            // expanded
    check(data, {4, 5}, {0, 0});            // one element, expanded
    check(data + 63, {8, 8}, {-8, -1});     // flipped
    check(data, {16, 4, 8}, {8, 256, 1});   // permuted [s, b, h]
    check(data, {1, 7, 1}, {999, 3, 555});  // strides of size-1 dimensions mean nothing
    check(data, {2, 2, 2, 2, 2, 2, 2, 2}, {1, 2, 4, 8, 16, 32, 64, 128});
  }

  TEST_CASE("Every element size is gathered") {
    const Shape shape{5, 3}, strides{1, 5};
    const auto bytes = counting<std::uint8_t>(15);
    const auto halves = counting<std::uint16_t>(15);
    const auto doubles = counting<double>(15);
    CHECK(gathered(bytes.data(), Dtype::kBool, shape, strides).bytes == elements(bytes.data(), shape, strides));
    CHECK(gathered(halves.data(), Dtype::kBFloat16, shape, strides).bytes == elements(halves.data(), shape, strides));
    CHECK(gathered(doubles.data(), Dtype::kFloat64, shape, strides).bytes == elements(doubles.data(), shape, strides));
  }

  TEST_CASE("A contiguous tensor is taken as it lies, without a copy") {
    const auto values = counting<float>(60);
    const auto is_in_place = [&](const Shape& shape, const Shape& strides) {
      bool in_place = false;
      for_each_block({values.data(), Dtype::kFloat32, shape, strides}, [&](std::string_view block) {
        in_place = block.data() == reinterpret_cast<const char*>(values.data());
        CHECK(block.size() == 60 * sizeof(float));
      });
      return in_place;
    };
    CHECK(is_in_place({3, 4, 5}, {}));
    CHECK(is_in_place({3, 4, 5}, {20, 5, 1}));
    CHECK(is_in_place({3, 1, 20}, {20, 7, 1}));
  }

  TEST_CASE("A large strided tensor passes through a small buffer") {
    const auto values = counting<float>(4'000'000);
    const auto check = [&](const Shape& shape, const Shape& strides, int blocks) {
      const Gathered result = gathered(values.data(), Dtype::kFloat32, shape, strides);
      CHECK(result.blocks == blocks);
      CHECK(result.bytes == elements(values.data(), shape, strides));
    };
    check({1031, 1500}, {1, 1031}, 2);         // 5.9 MiB, transposed
    check({2, 700'000}, {1, 2}, 2);            // rows that fit the buffer, one at a time
    check({2'000'000}, {2}, 2);                // one row, larger than the buffer
    check({2, 1'300'000}, {1, 3}, 4);          // several of these
    check({5, 700, 500}, {1, 5 * 500, 5}, 3);  // planes that do not end with the buffer
    check({3, 800, 1000}, {1'000'000, 1001, 1}, 3);
  }

  TEST_CASE("An empty tensor has no bytes, and a scalar has one element's") {
    const double value = 2.5;
    CHECK(gathered(nullptr, Dtype::kFloat32, {3, 0}, {1, 1}).blocks == 0);
    CHECK(gathered(&value, Dtype::kFloat64, {}, {}).bytes.size() == 8);
  }
}
