#include "load/mapped_file.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/error.h"
#include "support/temporary_directory.h"

namespace {

using namespace ttrace;

std::size_t resident_pages(const MappedFile& file) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::ifstream maps("/proc/self/smaps");
  std::size_t kib = 0;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) {
      inside = std::stoull(line, nullptr, 16) == reinterpret_cast<std::uintptr_t>(file.data());
    }
    if (inside && line.rfind("Rss:", 0) == 0) kib = std::stoull(line.substr(4));
  }
  return kib * 1024 / page;
}

TEST_SUITE("load") {
  TEST_CASE("released pages leave memory and read the same again") {
    const test::TemporaryDirectory directory;
    const auto path = directory.path() / "file";
    std::string text(1 << 20, 'x');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 >> 8);
    text.resize(text.size() + 100);  // the last page is not whole
    std::ofstream(path, std::ios::binary) << text;
    const auto file = map_file(path);
    CHECK_FALSE(file->explains_losses());  // of a library that left signals alone
    CHECK(mapped_text(*file) == text);
    CHECK(resident_pages(*file) > 0);
    file->release(file->data(), file->size());
    CHECK(resident_pages(*file) == 0);
    CHECK(mapped_text(*file) == text);
    file->release(file->data() + 5000, 1);
    CHECK(mapped_text(*file) == text);
  }

  TEST_CASE("bytes that are read from the file map no page, and that they are gone is said") {
    const test::TemporaryDirectory directory;
    const auto path = directory.path() / "file";
    std::ofstream(path, std::ios::binary) << std::string(1 << 20, 'x') << "the end";
    const auto file = map_file(path);
    std::string copy(7, ' ');
    CHECK(file->read(file->data() + (1 << 20), 7, reinterpret_cast<std::byte*>(copy.data())));
    CHECK(copy == "the end");
    CHECK(resident_pages(*file) == 0);
    std::filesystem::resize_file(path, 1 << 20);
    const std::string message =
        path.string() + ": a part of it is gone while it is read; expected a file that nobody shortens";
    CHECK_THROWS_WITH_AS(file->read(file->data() + (1 << 20) - 1, 7, reinterpret_cast<std::byte*>(copy.data())),
                         message.c_str(), InputError);
  }

  TEST_CASE("a job of many ranks does not use up the descriptors: what has none is read in place") {
    const test::TemporaryDirectory directory;
    const auto path = directory.path() / "file";
    std::ofstream(path) << "text";
    const int next = ::dup(STDIN_FILENO);  // the next file has this descriptor
    ::close(next);
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit few{static_cast<rlim_t>(next) + 1, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    const auto first = map_file(path), second = map_file(path);
    ::setrlimit(RLIMIT_NOFILE, &before);
    std::byte copy{};
    CHECK_FALSE(first->read(first->data(), 1, &copy));
    CHECK(mapped_text(*first) == "text");
    CHECK(mapped_text(*second) == "text");
  }

  TEST_CASE("a file that is cut while it is mapped ends the program with a line and exit code 2, in any thread") {
    const test::TemporaryDirectory directory;
    const auto path = directory.path() / "rank-00000.h5";
    std::ofstream(path) << std::string(1 << 16, 'x');
    for (const bool in_thread : {false, true}) {
      int ends[2];
      REQUIRE(::pipe(ends) == 0);
      std::filesystem::resize_file(path, 1 << 16);
      const pid_t child = ::fork();
      if (child == 0) {
        ::dup2(ends[1], STDERR_FILENO);
        explain_lost_pages();
        const auto file = map_file(path);
        if (!file->explains_losses()) ::_exit(3);
        std::filesystem::resize_file(path, 100);
        const auto read = [&] { ::_exit(file->data()[60'000] == std::byte{'x'} ? 0 : 1); };
        if (in_thread) std::thread(read).join();
        read();
      }
      ::close(ends[1]);
      char text[1000];
      const ssize_t size = ::read(ends[0], text, sizeof text);
      ::close(ends[0]);
      int status = 0;
      REQUIRE(::waitpid(child, &status, 0) == child);
      CHECK(WIFEXITED(status));
      CHECK(WEXITSTATUS(status) == 2);
      CHECK(std::string(text, static_cast<std::size_t>(std::max<ssize_t>(size, 0))) ==
            "ttrace: error: " + path.string() +
                ": a part of it is gone while it is read; expected a file that nobody shortens\n");
    }
  }

  TEST_CASE("a file that is written to while it is mapped is noticed") {
    const test::TemporaryDirectory directory;
    const auto path = directory.path() / "file";
    std::ofstream(path) << "one";
    const auto file = map_file(path);
    CHECK_NOTHROW(require_unchanged_files());
    std::ofstream(directory.path() / "other") << "two";
    std::filesystem::rename(directory.path() / "other", path);  // leaves what is mapped alone
    CHECK_NOTHROW(require_unchanged_files());
    const auto second = map_file(path);
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
    const std::string message = path.string() + ": changed while it was read; expected a file that nobody writes to";
    CHECK_THROWS_WITH_AS(require_unchanged_files(), message.c_str(), InputError);
  }

  TEST_CASE("a file that is written to is noticed where its time is set back, and where another took its name") {
    const test::TemporaryDirectory directory;
    const auto path = directory.path() / "file", other = directory.path() / "other";
    for (const bool is_moved : {false, true}) {
      std::ofstream(path) << "one";
      const auto before = std::filesystem::last_write_time(path);
      const auto file = map_file(path);
      CHECK_NOTHROW(require_unchanged_files());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the kernel's clock ticks
      if (is_moved) std::filesystem::rename(path, other);
      if (is_moved) std::ofstream(path) << "one";
      const auto written = is_moved ? other : path;
      std::fstream(written, std::ios::in | std::ios::out) << "two";
      std::filesystem::last_write_time(written, before);
      CHECK_THROWS_AS(require_unchanged_files(), InputError);
    }
  }

  TEST_CASE("what is no regular file is not mapped, and nothing waits for it") {
    const test::TemporaryDirectory directory;
    const auto pipe = directory.path() / "pipe", link = directory.path() / "link", file = directory.path() / "file";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    std::ofstream(file) << "text";
    std::filesystem::create_symlink(file, link);
    const auto error = [](const std::filesystem::path& path) -> std::string {
      try {
        map_file(path);
      } catch (const InputError& refusal) {
        return refusal.what();
      }
      return "";
    };
    CHECK(error(pipe) == pipe.string() + ": not a regular file; expected a readable file");
    CHECK(error("/dev/zero") == "/dev/zero: not a regular file; expected a readable file");
    CHECK(error(link) == link.string() + ": a symbolic link; expected a readable file");
    CHECK(error(file).empty());
  }
}

}  // namespace
