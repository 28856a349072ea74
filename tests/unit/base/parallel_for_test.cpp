#include "base/parallel_for.h"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

using namespace ttrace;

TEST_SUITE("base") {
  TEST_CASE("each piece of work is done once, on any number of threads") {
    for (const int threads : {0, 1, 3}) {
      std::vector<int> done(1000, 0);
      parallel_for(done.size(), threads, [&](std::size_t i) { ++done[i]; });
      parallel_for_ranges(done.size(), 64, threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) ++done[i];
      });
      CHECK(done == std::vector<int>(1000, 2));
    }
    parallel_for_ranges(0, 64, 3, [](std::size_t, std::size_t) { throw std::logic_error("there is no work"); });
  }

  TEST_CASE("of several errors the first in order is thrown, whichever thread was faster") {
    for (const int threads : {1, 4}) {
      for (int round = 0; round < 50; ++round) {
        std::string message;
        try {
          parallel_for(100, threads, [](std::size_t i) {
            if (i % 10 == 7) throw std::runtime_error(std::to_string(i));
          });
        } catch (const std::runtime_error& error) {
          message = error.what();
        }
        CHECK(message == "7");
      }
    }
  }
}
