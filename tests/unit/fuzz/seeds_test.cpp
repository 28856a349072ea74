#include <doctest/doctest.h>

#include <filesystem>
#include <stdexcept>

#include "base/error.h"
#include "files/regular_file.h"
#include "fuzz/target.h"

namespace ttrace::fuzz {

void fail_silent_pass(const std::string& what) { throw std::logic_error("silent pass: " + what); }
void fail_promise(const std::string& what) { throw std::logic_error("broken promise: " + what); }

namespace {

TEST_SUITE_BEGIN("fuzz");

TEST_CASE("inputs that once ended the program, or led to a silent pass, no longer do") {
  for (const Target& target : kTargets) {
    int seeds = 0;
    const auto folder = std::filesystem::path(TTRACE_SOURCE_DIR) / "tests/fuzz/seeds" / target.name;
    for (const auto& seed : std::filesystem::directory_iterator(folder)) {
      CAPTURE(seed.path().string());
      try {
        target.run(read_text_file(seed.path(), "a seed"));
      } catch (const InputError&) {
        // Refused.
      }
      ++seeds;
    }
    CAPTURE(target.name);
    CHECK(seeds > 0);
  }
}

TEST_SUITE_END();

}  // namespace
}  // namespace ttrace::fuzz
