#include "identify/near_rows.h"

#include <doctest/doctest.h>

#include <vector>

#include "identify/samples.h"

using namespace ttrace;

namespace {

// Rows of two elements.
class Rows {
 public:
  explicit Rows(std::vector<float> values) : values_(std::move(values)) {}

  HashedRows hashed() const {
    const auto* data = reinterpret_cast<const std::byte*>(values_.data());
    const Shape shape = {std::ssize(values_) / 2, 2};
    return {data, shape, Dtype::kFloat32, hashes_of_rows(data, shape, 0, Dtype::kFloat32)};
  }

 private:
  std::vector<float> values_;
};

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("rows that differ in rounding alone are the reference's, others and rows that could be two are not") {
  const Rows whole({1, 2, 5, 6, -3, 4, 7, -8}), part({5, 6, 1.0000001F, 2, -3.2F, 4, 7, -8.000001F});
  std::vector<HashedRows> parts = {part.hashed()};
  const HashedRows reference = whole.hashed();
  take_hashes_of_near_rows(reference, parts, 0);
  CHECK(parts[0].hashes[0] == reference.hashes[1]);
  CHECK(parts[0].hashes[1] == reference.hashes[0]);
  CHECK(parts[0].hashes[2] == part.hashed().hashes[2]);  // too far from it
  CHECK(parts[0].hashes[3] == reference.hashes[3]);
  const Rows alike({1, 2, 1.00001F, 2, 5, 6}), between({1.000005F, 2, 5, 6});
  parts = {between.hashed()};
  take_hashes_of_near_rows(alike.hashed(), parts, 0);
  CHECK(parts[0].hashes[0] == between.hashed().hashes[0]);
}

TEST_SUITE_END();
