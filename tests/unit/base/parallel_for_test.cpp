#include "base/parallel_for.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
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

  TEST_CASE("a loop inside a loop runs on the thread that calls it, and threads have numbers below their count") {
    std::vector<int> done(64 * 64, 0);
    std::vector<int> outer(4, 0);
    parallel_for(64, 4, [&](std::size_t i) {
      ++outer.at(thread_number());
      const std::thread::id caller = std::this_thread::get_id();
      parallel_for(64, 4, [&](std::size_t k) {
        if (caller == std::this_thread::get_id() && thread_number() == 0) ++done[i * 64 + k];
      });
    });
    CHECK(done == std::vector<int>(64 * 64, 1));
    CHECK(std::accumulate(outer.begin(), outer.end(), 0) == 64);
  }

  TEST_CASE("loops of several threads at once each do their own work") {
    std::vector<std::jthread> callers;
    std::vector<std::vector<int>> done(4, std::vector<int>(1000, 0));
    for (std::vector<int>& own : done) {
      callers.emplace_back([&own] {
        for (int round = 0; round < 20; ++round) parallel_for(own.size(), 3, [&](std::size_t i) { ++own[i]; });
      });
    }
    callers.clear();  // joins
    for (const std::vector<int>& own : done) CHECK(own == std::vector<int>(1000, 20));
  }

#ifndef __SANITIZE_THREAD__  // which has no threads in a child of several
  TEST_CASE("a child that was forked makes threads of its own") {
    const auto work = [] {
      std::vector<int> done(1000, 0);
      parallel_for(done.size(), 3, [&](std::size_t i) { ++done[i]; });
      return done == std::vector<int>(1000, 1);
    };
    CHECK(work());
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      ::_exit(work() ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
#endif

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
