#include "record/write_buffer.h"

#include <doctest/doctest.h>

#include <string>

#include "support/forged_trace.h"
#include "support/temporary_directory.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE("record") {
  constexpr std::size_t kPiece = WriteBuffer::kPieceBytes;

  // Bytes of which no two neighbouring runs are alike.
  std::string varied(std::size_t size) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
    return bytes;
  }

  TEST_CASE("A buffer writes whole pieces by itself, and what is left when it is told") {
    const TemporaryDirectory directory;
    RawFile file(directory.path() / "file");
    const std::string head(4096, 'h');
    file.write_at(0, head);
    WriteBuffer buffer(file, head.size());
    const std::string bytes = varied(2 * kPiece);
    buffer.append(std::string_view(bytes).substr(0, 100));
    CHECK(contents(directory.path() / "file") == head);
    buffer.append_zeros_until(head.size() + 128);
    buffer.append(bytes);
    const std::string all = head + bytes.substr(0, 100) + std::string(28, '\0') + bytes;
    CHECK(buffer.end() == all.size());
    CHECK(contents(directory.path() / "file") == all.substr(0, 2 * kPiece));
    buffer.write_until(2 * kPiece + 50);
    CHECK(contents(directory.path() / "file") == all.substr(0, 2 * kPiece + 50));
    buffer.write_until(all.size());
    buffer.append("behind");
    buffer.write_until(buffer.end());
    CHECK(contents(directory.path() / "file") == all + "behind");
  }

  TEST_CASE("A buffer knows the bytes that it has written, those that it has not, and those across the border") {
    const TemporaryDirectory directory;
    RawFile file(directory.path() / "file");
    WriteBuffer buffer(file, 0);
    const std::string bytes = varied(3 * kPiece / 2);
    buffer.append(bytes);
    for (const std::size_t begin : {std::size_t{0}, std::size_t{64}, kPiece - 1, kPiece, kPiece + 64}) {
      for (const std::size_t size : {std::size_t{1}, std::size_t{1000}, bytes.size() - begin}) {
        std::string part = bytes.substr(begin, size);
        CHECK(buffer.holds(begin, part));
        for (const std::size_t at : {std::size_t{0}, part.size() / 2, part.size() - 1}) {
          part[at] ^= 1;
          CHECK_FALSE(buffer.holds(begin, part));
          part[at] ^= 1;
        }
      }
    }
    CHECK_FALSE(buffer.holds(64, bytes));  // reaches beyond the end
    CHECK_FALSE(buffer.holds(kPiece + 64, bytes.substr(kPiece)));
  }
}
