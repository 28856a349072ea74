#include "inspect/slice.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace ttrace {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

class SliceReader {
 public:
  SliceReader(const std::string& text, const Shape& shape) : text_(text), shape_(shape) {}

  Box read() const {
    Box box = whole_box(shape_);
    std::string_view rest = text_;
    for (std::size_t dim = 0;; ++dim) {
      const std::size_t comma = rest.find(',');
      if (dim == shape_.size()) refuse(fmt::format("more than the {} dimensions of {}", dim, to_string(shape_)));
      read_dimension(trimmed(rest.substr(0, comma)), dim, box);
      if (comma == std::string_view::npos) return box;
      rest.remove_prefix(comma + 1);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError(fmt::format("--slice '{}': {}; expected ranges as in '0:4, :, -1'", text_, what));
  }

  std::optional<std::int64_t> number(std::string_view word) const {
    if (word.empty()) return std::nullopt;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || end != word.data() + word.size()) refuse(fmt::format("'{}' is no index", word));
    return value;
  }

  // An index may count from the end.
  std::int64_t from_start(std::int64_t index, std::size_t dim) const { return index < 0 ? index + shape_[dim] : index; }

  void read_dimension(std::string_view word, std::size_t dim, Box& box) const {
    const std::size_t colon = word.find(':');
    std::int64_t begin = 0, end = 0;
    if (colon == std::string_view::npos) {
      const std::optional<std::int64_t> index = number(word);
      if (!index) refuse("an index is missing");
      begin = from_start(*index, dim);
      end = begin < shape_[dim] ? begin + 1 : begin;  // the largest number has none after it
    } else {
      begin = from_start(number(trimmed(word.substr(0, colon))).value_or(0), dim);
      end = from_start(number(trimmed(word.substr(colon + 1))).value_or(shape_[dim]), dim);
    }
    if (begin < 0 || begin >= end || end > shape_[dim]) {
      refuse(fmt::format("dimension {} has {} elements", dim, shape_[dim]));
    }
    box.start[dim] = begin;
    box.size[dim] = end - begin;
  }

  const std::string& text_;
  const Shape& shape_;
};

}  // namespace

Box parse_slice(const std::string& text, const Shape& shape) { return SliceReader(text, shape).read(); }

}  // namespace ttrace
