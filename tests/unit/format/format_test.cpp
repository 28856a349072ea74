#include "format/format.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

namespace ttrace {

TEST_SUITE("format") {
  TEST_CASE("an entry says that it is a sketch, and which checksum of the tensor it has") {
    for (const bool is_fingerprint : {false, true}) {
      CAPTURE(is_fingerprint);
      Entry entry;
      entry.dtype = Dtype::kBFloat16;
      entry.shape = {512, 1024};
      entry.sketch =
          std::make_shared<const RecordedSketch>(RecordedSketch{{128, 128}, 0xfedcba9876543210, is_fingerprint});
      const std::vector<std::int64_t> stored = stored_shape(entry);
      CHECK(stored_dtype(entry) == (is_fingerprint ? 128 + 64 + 4 : 128 + 4));
      REQUIRE(stored.size() == stored_shape_size(stored_dtype(entry), 2));
      Entry read;
      set_shape(read, stored_dtype(entry), Shape(stored.begin(), stored.begin() + 2), stored.data() + 2);
      CHECK(read.dtype == entry.dtype);
      CHECK(read.shape == entry.shape);
      REQUIRE(read.sketch);
      CHECK(read.sketch->edges == entry.sketch->edges);
      CHECK(read.sketch->checksum == entry.sketch->checksum);
      CHECK(read.sketch->is_fingerprint == is_fingerprint);
    }
  }

  TEST_CASE("no tensor that is whole has a fingerprint") {
    Entry entry;
    set_shape(entry, 64 + 4, Shape{2, 3}, nullptr);
    CHECK_FALSE(entry.sketch);
    CHECK(static_cast<int>(entry.dtype) == 64 + 4);  // which is out of range
  }
}

}  // namespace ttrace
