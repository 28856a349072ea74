#include "ttrace/plan/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <vector>

#include "ttrace/error.h"

namespace ttrace {
namespace {

constexpr std::size_t kMostCharacters = 1000;  // of an expression; also bounds how deep it nests

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Recursive descent, which evaluates while it reads: both sides of `and` and `or` are always looked at, so that a
// mistake shows in every combination.
class Parser {
 public:
  Parser(std::string_view text, const PlanValues& values) : text_(text), values_(values) {}

  PlanValue whole() {
    if (text_.size() > kMostCharacters) fail(fmt::format("expected at most {} characters", kMostCharacters));
    PlanValue value = disjunction();
    if (!at_end()) fail(fmt::format("'{}' was not expected", rest()));
    return value;
  }

  std::int64_t number(const PlanValue& value) const {
    if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
    fail(fmt::format("'{}' is no number; expected one", std::get<std::string>(value)));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw InputError(fmt::format("'{}': {}", text_, what)); }

  void skip_spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool at_end() {
    skip_spaces();
    return at_ == text_.size();
  }
  std::string_view rest() {
    skip_spaces();
    return text_.substr(at_);
  }
  bool take(std::string_view symbol) {
    if (!rest().starts_with(symbol)) return false;
    at_ += symbol.size();
    return true;
  }
  std::string_view peek_name() {
    const std::string_view text = rest();
    if (text.empty() || !is_letter(text[0])) return {};
    const auto* const end =
        std::find_if(text.begin(), text.end(), [](char c) { return !is_letter(c) && !is_digit(c); });
    return text.substr(0, static_cast<std::size_t>(end - text.begin()));
  }
  bool take_word(std::string_view word) { return peek_name() == word && take(word); }

  PlanValue disjunction() {
    PlanValue value = conjunction();
    while (take_word("or")) {
      const bool left = number(value) != 0, right = number(conjunction()) != 0;
      value = std::int64_t{left || right};
    }
    return value;
  }

  PlanValue conjunction() {
    PlanValue value = negation();
    while (take_word("and")) {
      const bool left = number(value) != 0, right = number(negation()) != 0;
      value = std::int64_t{left && right};
    }
    return value;
  }

  PlanValue negation() {
    if (take_word("not")) return std::int64_t{number(negation()) == 0};
    return comparison();
  }

  PlanValue comparison() {
    PlanValue left = sum();
    if (take("==")) return std::int64_t{left == sum()};
    if (take("!=")) return std::int64_t{left != sum()};
    if (take("<=")) return std::int64_t{number(left) <= number(sum())};
    if (take(">=")) return std::int64_t{number(left) >= number(sum())};
    if (take("<")) return std::int64_t{number(left) < number(sum())};
    if (take(">")) return std::int64_t{number(left) > number(sum())};
    return left;
  }

  PlanValue sum() {
    PlanValue value = product();
    while (true) {
      if (take("+")) {
        value = checked(__builtin_add_overflow(number(value), number(product()), &result_));
      } else if (take("-")) {
        value = checked(__builtin_sub_overflow(number(value), number(product()), &result_));
      } else {
        return value;
      }
    }
  }

  PlanValue product() {
    PlanValue value = factor();
    while (true) {
      if (take("*")) {
        value = checked(__builtin_mul_overflow(number(value), number(factor()), &result_));
      } else if (take("/")) {
        const std::int64_t left = number(value), right = divisor();
        value = checked(right == -1 ? __builtin_sub_overflow(0, left, &result_) : (result_ = left / right, false));
      } else if (take("%")) {
        const std::int64_t left = number(value), right = divisor();
        value = right == -1 ? 0 : left % right;
      } else {
        return value;
      }
    }
  }

  std::int64_t divisor() {
    const std::int64_t value = number(factor());
    if (value == 0) fail("a division by zero");
    return value;
  }

  PlanValue factor() {
    if (take("-")) return checked(__builtin_sub_overflow(0, number(factor()), &result_));
    return atom();
  }

  PlanValue atom() {
    if (take("(")) {
      PlanValue value = disjunction();
      if (!take(")")) fail("no ) for its (");
      return value;
    }
    const std::string_view text = rest();
    if (!text.empty() && text[0] == '\'') return quoted(text);
    if (!text.empty() && is_digit(text[0])) return digits(text);
    return named();
  }

  PlanValue quoted(std::string_view text) {
    const std::size_t end = text.find('\'', 1);
    if (end == text.npos) fail("no closing '");
    at_ += end + 1;
    return std::string(text.substr(1, end - 1));
  }

  PlanValue digits(std::string_view text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) fail("a number beyond 64 bits");
    at_ += static_cast<std::size_t>(end - text.data());
    return value;
  }

  PlanValue named() {
    const std::string name(peek_name());
    if (name.empty()) fail(at_end() ? "it ends too early" : fmt::format("'{}' was not expected", rest()));
    const auto found = values_.find(name);
    if (found != values_.end()) {
      take(name);
      return found->second;
    }
    std::string known;
    for (const auto& [key, value] : values_) known += (known.empty() ? "" : ", ") + key;
    fail(
        fmt::format("there is no '{}'; expected {}", name, known.empty() ? "a matrix that has it" : "one of " + known));
  }

  PlanValue checked(bool overflow) const {
    if (overflow) fail("a number beyond 64 bits");
    return result_;
  }

  std::string_view text_;
  const PlanValues& values_;
  std::size_t at_ = 0;
  std::int64_t result_ = 0;
};

}  // namespace

bool is_plan_name(std::string_view text) {
  constexpr std::array<std::string_view, 3> kWords = {"and", "or", "not"};
  return !text.empty() && is_letter(text[0]) && std::find(kWords.begin(), kWords.end(), text) == kWords.end() &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_digit(c); });
}

std::string to_string(const PlanValue& value) {
  const auto* number = std::get_if<std::int64_t>(&value);
  return number != nullptr ? fmt::format("{}", *number) : std::get<std::string>(value);
}

PlanValue evaluate(std::string_view expression, const PlanValues& values) { return Parser(expression, values).whole(); }

bool holds(std::string_view condition, const PlanValues& values) {
  Parser parser(condition, values);
  return parser.number(parser.whole()) != 0;
}

std::string substitute(std::string_view text, const PlanValues& values) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '{' && text[i] != '}') {
      result += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == text[i]) {
      result += text[i++];
    } else {
      const std::size_t end = text[i] == '{' ? text.find('}', i) : text.npos;
      if (end == text.npos) {
        throw InputError(
            fmt::format("'{}': a single '{}'; expected {{name}}, or {{{{ and }}}} for braces", text, text[i]));
      }
      result += to_string(evaluate(text.substr(i + 1, end - i - 1), values));
      i = end;
    }
  }
  return result;
}

}  // namespace ttrace
