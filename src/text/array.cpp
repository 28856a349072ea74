#include "text/array.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace ttrace {
namespace {

constexpr std::int64_t kMostWhole = 1000, kEdge = 3;  // as NumPy's `threshold` and `edgeitems`
constexpr std::size_t kLineWidth = 80;

class ArrayText {
 public:
  ArrayText(std::span<const double> values, const Shape& shape, bool whole_numbers)
      : values_(values),
        shape_(shape),
        strides_(row_major_strides(shape)),
        whole_numbers_(whole_numbers),
        is_shortened_(element_count(shape) > kMostWhole) {}

  std::string text() {
    if (shape_.empty()) return word_of(0) + "\n";
    fit(0, 0);
    append(0, 0);
    return text_ + "\n";
  }

 private:
  std::string word_of(std::int64_t position) const {
    const double value = values_[static_cast<std::size_t>(position)];
    return whole_numbers_ ? fmt::format("{:.0f}", value) : fmt::format("{:.5g}", value);
  }

  // Calls `visit(index)` for each index of dimension `dim` that is shown, and `gap()` where some are left out.
  template <class Visit, class Gap>
  void for_each_shown(std::size_t dim, Visit visit, Gap gap) const {
    const std::int64_t size = shape_[dim];
    const bool cut = is_shortened_ && size > 2 * kEdge;
    for (std::int64_t i = 0; i < size; ++i) {
      if (cut && i == kEdge) {
        gap();
        i = size - kEdge;
      }
      visit(i);
    }
  }

  // Finds the width of the widest element that is shown.
  void fit(std::size_t dim, std::int64_t position) {
    if (dim == shape_.size()) {
      width_ = std::max(width_, word_of(position).size());
      return;
    }
    for_each_shown(dim, [&](std::int64_t i) { fit(dim + 1, position + i * strides_[dim]); }, [] {});
  }

  void append_line(std::size_t dim, std::int64_t position) {
    std::size_t column = dim + 1;  // after the brackets
    bool is_first = true;
    const auto add = [&](std::string_view word) {
      if (!is_first && column + 1 + word.size() > kLineWidth - shape_.size()) {
        text_ += "\n" + std::string(dim + 1, ' ');
        column = dim + 1;
      } else if (!is_first) {
        text_ += ' ';
        ++column;
      }
      text_ += word;
      column += word.size();
      is_first = false;
    };
    for_each_shown(
        dim, [&](std::int64_t i) { add(fmt::format("{:>{}}", word_of(position + i * strides_[dim]), width_)); },
        [&] { add("..."); });
  }

  void append(std::size_t dim, std::int64_t position) {
    text_ += '[';
    if (dim + 1 == shape_.size()) {
      append_line(dim, position);
    } else {
      bool is_first = true;
      const auto begin_next = [&] {
        if (!is_first) text_ += std::string(shape_.size() - 1 - dim, '\n') + std::string(dim + 1, ' ');
        is_first = false;
      };
      for_each_shown(
          dim,
          [&](std::int64_t i) {
            begin_next();
            append(dim + 1, position + i * strides_[dim]);
          },
          [&] {
            begin_next();
            text_ += "...";
          });
    }
    text_ += ']';
  }

  std::span<const double> values_;
  const Shape& shape_;
  Shape strides_;
  bool whole_numbers_, is_shortened_;
  std::size_t width_ = 0;
  std::string text_;
};

}  // namespace

std::string array_text(std::span<const double> values, const Shape& shape, bool whole_numbers) {
  return ArrayText(values, shape, whole_numbers).text();
}

}  // namespace ttrace
