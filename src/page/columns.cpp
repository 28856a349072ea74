#include "page/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

namespace ttrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kManyRows = 20'000;
constexpr int kBitsOfMany = 9;  // of the 23 that a float has after its first: an error of 0.1 % at most
constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::min();

bool is_integral(const std::vector<double>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](double value) {
    return std::isnan(value) || (value == std::trunc(value) && std::abs(value) < 2147483647.0);
  });
}

// Rounds to `bits` of the significand, ties away from zero; the others become 0.
std::uint32_t rounded_bits(double value, int bits) {
  auto word = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (std::isnan(value)) return 0x7fc00000;
  const int dropped = 23 - bits;
  if (dropped <= 0 || (word & 0x7f800000) == 0x7f800000) return word;
  return (word + (1U << (dropped - 1))) & ~((1U << dropped) - 1);
}

void append_shuffled(const std::vector<std::uint32_t>& words, std::string& bytes) {
  for (int byte = 0; byte < 4; ++byte) {
    for (const std::uint32_t word : words) bytes += static_cast<char>(word >> (8 * byte) & 0xff);
  }
}

}  // namespace

Columns::Columns(std::size_t rows) : rows_(rows) {}

Columns::Column& Columns::find_or_add(const std::string& name, bool is_text) {
  const auto [at, is_new] = columns_.try_emplace(name);
  Column& one = at->second;
  if (!is_new) {
    assert(one.is_text == is_text);
    return one;
  }
  order_.push_back(name);
  one.is_text = is_text;
  if (is_text) {
    one.texts.emplace_back();
    one.place.emplace("", 0);
    one.indices.resize(rows_);
  } else {
    one.numbers.resize(rows_, std::numeric_limits<double>::quiet_NaN());
  }
  return one;
}

void Columns::set(std::size_t row, const std::string& column, const Json& value) {
  if (value.is_null()) return;
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) set(row, fmt::format("{}.{}", column, key), inner);
    return;
  }
  if (value.is_number() || value.is_boolean()) {
    find_or_add(column, false).numbers[row] = value.is_boolean() ? value.get<bool>() : value.get<double>();
    return;
  }
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  Column& one = find_or_add(column, true);
  const auto [at, is_new] = one.place.emplace(std::move(text), static_cast<std::uint32_t>(one.texts.size()));
  if (is_new) one.texts.push_back(at->first);
  one.indices[row] = at->second;
}

Json Columns::describe() const {
  Json list = Json::array();
  for (const std::string& name : order_) {
    const Column& one = columns_.at(name);
    Json json = {{"name", name}, {"type", one.is_text ? "text" : is_integral(one.numbers) ? "integer" : "real"}};
    if (one.is_text) json["texts"] = one.texts;
    list.push_back(std::move(json));
  }
  return list;
}

std::string Columns::bytes() const {
  std::string bytes;
  const int bits = rows_ > kManyRows ? kBitsOfMany : 23;
  for (const std::string& name : order_) {
    const Column& one = columns_.at(name);
    std::vector<std::uint32_t> words = one.indices;
    const bool is_integers = !one.is_text && is_integral(one.numbers);
    for (const double value : one.numbers) {
      words.push_back(is_integers
                          ? std::bit_cast<std::uint32_t>(std::isnan(value) ? kNone : static_cast<std::int32_t>(value))
                          : rounded_bits(value, bits));
    }
    append_shuffled(words, bytes);
  }
  return bytes;
}

}  // namespace ttrace
