#include "correspond/index_pattern.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace ttrace {
namespace {

constexpr std::string_view kPadding = "_";
constexpr std::size_t kMostFactors = 64;  // of a pattern; a file is not trusted

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  // The tensors up to the arrow or the end.
  std::vector<TensorPattern> side() {
    std::vector<TensorPattern> tensors = {tensor()};
    while (take(",")) tensors.push_back(tensor());
    return tensors;
  }
  void arrow() {
    if (!take("->")) fail("expected '->' between the two sides");
  }
  void end() {
    if (position_ < text_.size()) fail(fmt::format("'{}' is too much", text_.substr(position_)));
  }
  TensorPattern tensor() {
    TensorPattern tensor;
    for (skip_blanks(); !at_end_of_tensor(); skip_blanks()) {
      if (take("...")) {
        if (tensor.ellipsis) fail("'...' stands twice in one tensor; expected it once");
        tensor.ellipsis = tensor.dims.size();
      } else {
        tensor.dims.push_back(dimension());
      }
    }
    const auto sums = [](const AxisProduct& dim) {
      return std::count_if(dim.begin(), dim.end(), [](const AxisFactor& factor) { return !factor.sum.empty(); });
    };
    std::ptrdiff_t count = 0;
    for (const AxisProduct& dim : tensor.dims) {
      count += sums(dim);
      const bool padded = std::any_of(dim.begin(), dim.end(), [](const AxisFactor& factor) { return factor.padded; });
      if (padded && dim.size() > 1) fail("padding is of a whole dimension: expected '(v + _)'");
    }
    if (count > 1) fail("a tensor with several sums; expected one at most");
    return tensor;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw PatternError(fmt::format("'{}': {}", text_, what)); }

  void skip_blanks() {
    while (position_ < text_.size() && text_[position_] == ' ') ++position_;
  }
  bool next_is(std::string_view word) {
    skip_blanks();
    return text_.substr(position_).starts_with(word);
  }
  bool take(std::string_view word) {
    if (!next_is(word)) return false;
    position_ += word.size();
    return true;
  }
  bool at_end_of_tensor() { return position_ == text_.size() || next_is(",") || next_is("->"); }

  // A dimension is a factor, or several in parentheses. Parentheses around one sum are that sum's.
  AxisProduct dimension() {
    if (!next_is("(")) return {name()};
    return group();
  }

  // Reads what stands in parentheses: a product, or a sum of products.
  AxisProduct group() {
    if (++depth_ > 3) fail("parentheses are nested too deeply");
    take("(");
    std::vector<AxisProduct> terms = {product()};
    while (take("+")) terms.push_back(product());
    if (!take(")")) fail("a parenthesis is not closed; expected ')'");
    --depth_;
    if (terms.size() == 1) return terms.front();
    AxisFactor factor;
    const auto is_padding = [](const AxisProduct& term) { return term.size() == 1 && term.front().name == kPadding; };
    if (is_padding(terms.back())) {
      factor.padded = true;
      terms.pop_back();
    }
    for (const AxisProduct& term : terms) {
      for (const AxisFactor& inner : term) {
        if (!inner.sum.empty()) fail("a sum in a sum; expected products of axes");
        if (inner.name == kPadding) fail("'_' is no axis; expected it as the last term of a sum");
      }
    }
    factor.sum = std::move(terms);
    return {std::move(factor)};
  }

  AxisProduct product() {
    AxisProduct factors;
    for (skip_blanks(); position_ < text_.size() && !next_is(")") && !next_is("+"); skip_blanks()) {
      if (next_is("(")) {
        for (AxisFactor& factor : group()) factors.push_back(std::move(factor));
      } else {
        factors.push_back(name());
      }
    }
    if (factors.empty()) fail("a term without axes; expected names, or 1");
    return factors;
  }

  AxisFactor name() {
    skip_blanks();
    std::size_t end = position_;
    while (end < text_.size() && is_name_character(text_[end])) ++end;
    if (end == position_) fail(fmt::format("'{}' is no axis; expected a name, 1, '...' or '('", rest()));
    const std::string word(text_.substr(position_, end - position_));
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0 && word != "1") {
      fail(fmt::format("'{}' is no axis; expected a name or 1", word));
    }
    if (++factors_ > kMostFactors) fail("too many axes");
    position_ = end;
    return {word, {}, false};
  }

  std::string_view rest() const { return text_.substr(position_, 8); }

  std::string_view text_;
  std::size_t position_ = 0, factors_ = 0;
  int depth_ = 0;
};

void add_axes(const AxisProduct& product, std::size_t term, std::set<std::string>& axes, const std::string& text) {
  for (const AxisFactor& factor : product) {
    if (!factor.sum.empty()) {
      add_axes(factor.sum[term], 0, axes, text);
    } else if (factor.name != "1" && !axes.insert(factor.name).second) {
      throw PatternError(
          fmt::format("'{}': axis '{}' stands twice in one tensor; expected it once", text, factor.name));
    }
  }
}

// Calls `visit` with the product, and with the terms of the sums in it.
template <class Product, class Visit>
void visit_products(Product& product, const Visit& visit) {
  visit(product);
  for (auto& factor : product) {
    for (auto& term : factor.sum) visit_products(term, visit);
  }
}

// The same for all products of the pattern.
template <class Pattern, class Visit>
void visit_all_products(Pattern& pattern, const Visit& visit) {
  for (auto& side : pattern.sides) {
    for (auto& tensor : side) {
      for (auto& dim : tensor.dims) visit_products(dim, visit);
    }
  }
}

std::string text_of(const AxisProduct& product);

std::string text_of(const AxisFactor& factor) {
  if (factor.sum.empty()) return factor.name;
  std::vector<std::string> terms;
  for (const AxisProduct& term : factor.sum) terms.push_back(text_of(term));
  if (factor.padded) terms.emplace_back(kPadding);
  return fmt::format("({})", fmt::join(terms, " + "));
}

std::string text_of(const AxisProduct& product) {
  std::vector<std::string> factors;
  for (const AxisFactor& factor : product) factors.push_back(text_of(factor));
  return factors.size() == 1 ? factors.front() : fmt::format("({})", fmt::join(factors, " "));
}

std::string text_of(const TensorPattern& tensor) {
  std::vector<std::string> dims;
  for (const AxisProduct& dim : tensor.dims) dims.push_back(text_of(dim));
  if (tensor.ellipsis) dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(*tensor.ellipsis), "...");
  return fmt::format("{}", fmt::join(dims, " "));
}

std::string text_of(const std::vector<TensorPattern>& side) {
  std::vector<std::string> tensors;
  for (const TensorPattern& tensor : side) tensors.push_back(text_of(tensor));
  return fmt::format("{}", fmt::join(tensors, ", "));
}

bool has_ellipsis(const IndexPattern& pattern, bool all) {
  const auto has = [](const TensorPattern& tensor) { return tensor.ellipsis.has_value(); };
  std::size_t count = 0, tensors = 0;
  for (const auto& side : pattern.sides) {
    count += static_cast<std::size_t>(std::count_if(side.begin(), side.end(), has));
    tensors += side.size();
  }
  return all ? count == tensors : count > 0;
}

void require_no_blank_axes(const IndexPattern& pattern, const std::vector<PatternPart>& parts) {
  for (const PatternPart& part : parts) {
    if (part.axes.contains(std::string(kPadding))) {
      throw PatternError(fmt::format("'{}': '_' is no axis; expected it as the last term of a sum", pattern.text));
    }
  }
}

}  // namespace

const AxisFactor* TensorPattern::sum() const {
  for (const AxisProduct& dim : dims) {
    for (const AxisFactor& factor : dim) {
      if (!factor.sum.empty()) return &factor;
    }
  }
  return nullptr;
}

bool TensorPattern::has_padding() const {
  const AxisFactor* factor = sum();
  return factor != nullptr && factor->padded;
}

std::vector<PatternPart> IndexPattern::parts(std::size_t side) const {
  std::vector<PatternPart> parts;
  for (std::size_t tensor = 0; tensor < sides[side].size(); ++tensor) {
    const AxisFactor* sum = sides[side][tensor].sum();
    const std::size_t terms = sum == nullptr ? 1 : sum->sum.size();
    for (std::size_t term = 0; term < terms; ++term) {
      PatternPart part{tensor, term, {}};
      for (const AxisProduct& dim : sides[side][tensor].dims) add_axes(dim, term, part.axes, text);
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

IndexPattern read_index_pattern(std::string_view text) {
  IndexPattern pattern;
  pattern.text = text;
  Parser parser(pattern.text);
  pattern.sides[0] = parser.side();
  parser.arrow();
  pattern.sides[1] = parser.side();
  parser.end();
  return pattern;
}

std::string to_string(const IndexPattern& pattern) {
  return fmt::format("{} -> {}", text_of(pattern.sides[0]), text_of(pattern.sides[1]));
}

void rename_axis(const std::string& from, const std::string& to, IndexPattern& pattern) {
  visit_all_products(pattern, [&](AxisProduct& product) {
    for (AxisFactor& factor : product) {
      if (factor.name == from) factor.name = to;
    }
  });
  pattern.text = to_string(pattern);
}

std::set<std::string> axes_inside_products(const IndexPattern& pattern) {
  std::set<std::string> axes;
  visit_all_products(pattern, [&](const AxisProduct& product) {
    if (product.size() < 2) return;
    for (const AxisFactor& factor : product) {
      if (factor.sum.empty()) axes.insert(factor.name);
    }
  });
  return axes;
}

IndexPattern parse_index_pattern(std::string_view text, const std::set<std::string>& left_axes,
                                 const std::set<std::string>& right_axes) {
  IndexPattern pattern = read_index_pattern(text);
  if (has_ellipsis(pattern, false) && !has_ellipsis(pattern, true)) {
    throw PatternError(fmt::format("'{}': '...' stands in some tensors only; expected it in all or none", text));
  }
  const std::vector<PatternPart> left = pattern.parts(0), right = pattern.parts(1);
  require_no_blank_axes(pattern, left);
  require_no_blank_axes(pattern, right);
  if (left.size() != right.size() && left.size() != 1 && right.size() != 1) {
    throw PatternError(fmt::format("'{}': {} parts on the left, {} on the right; expected as many, or one", text,
                                   left.size(), right.size()));
  }
  for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    std::set<std::string> a = left[std::min(i, left.size() - 1)].axes, b = right[std::min(i, right.size() - 1)].axes;
    a.insert(left_axes.begin(), left_axes.end());
    b.insert(right_axes.begin(), right_axes.end());
    if (a != b) {
      throw PatternError(fmt::format("'{}': part {} has the axes {} on the left and {} on the right; expected the same",
                                     text, i + 1, fmt::join(a, " "), fmt::join(b, " ")));
    }
  }
  return pattern;
}

TensorPattern parse_tensor_pattern(std::string_view text) {
  const std::string copy(text);
  Parser parser(copy);
  TensorPattern tensor = parser.tensor();
  parser.end();
  return tensor;
}

}  // namespace ttrace
