#include "load/mapped_file.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

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
    const tests::TemporaryDirectory directory;
    const auto path = directory.path() / "file";
    std::string text(1 << 20, 'x');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 >> 8);
    text.resize(text.size() + 100);  // the last page is not whole
    std::ofstream(path, std::ios::binary) << text;
    const auto file = map_file(path);
    CHECK(mapped_text(*file) == text);
    CHECK(resident_pages(*file) > 0);
    file->release(file->data(), file->size());
    CHECK(resident_pages(*file) == 0);
    CHECK(mapped_text(*file) == text);
    file->release(file->data() + 5000, 1);
    CHECK(mapped_text(*file) == text);
  }
}

}  // namespace
