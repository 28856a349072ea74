#include <doctest/doctest.h>
#include <zlib.h>

#include <bit>
#include <cmath>
#include <limits>

#include "page/columns.h"
#include "page/html.h"
#include "page/packed.h"
#include "support/reports.h"

namespace {

using namespace ttrace;
using namespace ttrace::test;

bool contains(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

std::string unpack(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(digits.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  std::string plain(1 << 20, '\0');
  uLongf size = plain.size();
  REQUIRE(uncompress(reinterpret_cast<Bytef*>(plain.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                     static_cast<uLong>(bytes.size())) == Z_OK);
  plain.resize(size);
  return plain;
}

std::uint32_t word(const std::string& bytes, std::size_t rows, std::size_t column, std::size_t row) {
  std::uint32_t value = 0;
  for (std::size_t byte = 4; byte-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[(column * 4 + byte) * rows + row]);
  }
  return value;
}

TEST_SUITE("page") {
  TEST_CASE("data of any length survives its packing") {
    for (const std::string text : {"", "a", "ab", "abc", "abcd"}) CHECK(unpack(pack(text)) == text);
  }

  TEST_CASE("columns keep texts, integers and numbers, and what is not there") {
    Columns columns(3);
    columns.set(0, "name", "a");
    columns.set(2, "name", "a");
    columns.set(1, "count", 7);
    columns.set(2, "error", 0.1);
    columns.set(0, "error", nullptr);
    columns.set(0, "inner", {{"ranks", {0, 1}}});
    const nlohmann::ordered_json kinds = columns.describe();
    REQUIRE(kinds.size() == 4);
    CHECK(kinds[0] == nlohmann::ordered_json({{"name", "name"}, {"type", "text"}, {"texts", {"", "a"}}}));
    CHECK(kinds[1]["type"] == "integer");
    CHECK(kinds[2]["type"] == "real");
    CHECK(kinds[3]["name"] == "inner.ranks");
    CHECK(kinds[3]["texts"] == nlohmann::ordered_json({"", "[0,1]"}));
    const std::string bytes = columns.bytes();
    REQUIRE(bytes.size() == 4 * 3 * 4);
    CHECK(word(bytes, 3, 0, 0) == 1);
    CHECK(word(bytes, 3, 0, 1) == 0);
    CHECK(word(bytes, 3, 1, 0) == 0x80000000);
    CHECK(word(bytes, 3, 1, 1) == 7);
    CHECK(std::isnan(std::bit_cast<float>(word(bytes, 3, 2, 0))));
    CHECK(std::bit_cast<float>(word(bytes, 3, 2, 2)) == 0.1f);
  }

  TEST_CASE("numbers of a long table are rounded to three digits") {
    Columns columns(30'000);
    columns.set(0, "error", 0.123456);
    columns.set(1, "error", -7.654321e-20);
    columns.set(2, "error", std::numeric_limits<double>::max());
    const std::string bytes = columns.bytes();
    CHECK(std::bit_cast<float>(word(bytes, 30'000, 0, 0)) == doctest::Approx(0.123456).epsilon(1e-3));
    CHECK(std::bit_cast<float>(word(bytes, 30'000, 0, 1)) == doctest::Approx(-7.654321e-20).epsilon(1e-3));
    CHECK(std::isinf(std::bit_cast<float>(word(bytes, 30'000, 0, 2))));
  }

  TEST_CASE("a page names no other file, and no text of a report is markup in it") {
    Report report = report_of({wrong("</script><b>")}, 3);
    const std::string page = to_html(report, {});
    CHECK(!contains(page, "<b>"));
    CHECK(!contains(page, "{{sentence}}"));
    CHECK(!contains(page, "<script src"));
    CHECK(!contains(page, "stylesheet"));
    CHECK(contains(page, "&lt;/script&gt;&lt;b&gt;"));
    CHECK(contains(page, "default-src 'none'"));
  }

  TEST_CASE("the same report makes the same page") {
    const Report report = report_of({wrong("a"), missing("b"), missing_rank()}, 2);
    CHECK(to_html(report, {}) == to_html(report, {}));
  }
}

}  // namespace
