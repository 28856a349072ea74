#include "host/progress.h"

#include <doctest/doctest.h>

using namespace ttrace;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("progress has rate and time left where the size of the work is known") {
  CHECK(progress_text("comparing", 25 * kMiB, 100 * kMiB, 5) == "comparing: 25 % of 100.0 MiB, 5.0 MiB/s, 15 s left");
  CHECK(progress_text("comparing", 0, 100 * kMiB, 5) == "comparing: 0 % of 100.0 MiB");
  CHECK(progress_text("comparing", kMiB, 1000 * kMiB, 2) ==
        "comparing: 0 % of 1000.0 MiB, 512.0 KiB/s, 33:18 min left");
}

TEST_CASE("progress has rate and time gone where the size is not known, or was another") {
  CHECK(progress_text("a: 2 ranks", 10 * kMiB, 0, 2) == "a: 2 ranks: 10.0 MiB, 5.0 MiB/s, 2 s");
  CHECK(progress_text("a", 10 * kMiB, 5 * kMiB, 2) == "a: 10.0 MiB, 5.0 MiB/s, 2 s");
  CHECK(progress_text("a", 0, 0, 3700) == "a: 0 bytes, 1:01 h");
}
