// The arithmetic of a matrix: what stands between the braces of `--nproc-per-node {tp * pp}`, and in `where`.
//
//   expression := and ("or" and)*         and    := not ("and" not)*       not := "not" not | comparison
//   comparison := sum (("==" | "!=" | "<" | "<=" | ">" | ">=") sum)?       sum := product (("+" | "-") product)*
//   product    := factor (("*" | "/" | "%") factor)*                       factor := "-" factor | atom
//   atom       := number | 'word' | name | "(" expression ")"
//
// Numbers are integers, / rounds towards zero, a condition is 1 or 0. Words can be compared with == and != only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

namespace ttrace {

using PlanValue = std::variant<std::int64_t, std::string>;
using PlanValues = std::map<std::string, PlanValue>;  // of one combination of a matrix, by name

bool is_plan_name(std::string_view text);  // a letter, then letters, digits, _; none of and, or, not
std::string to_string(const PlanValue& value);

// Throws InputError for what is no expression, a name that `values` lacks, arithmetic on words, a division by zero and
// numbers beyond 64 bits.
PlanValue evaluate(std::string_view expression, const PlanValues& values);
bool holds(std::string_view condition, const PlanValues& values);  // not 0; throws also for a word

// `text` with each `{expression}` replaced by its value; `{{` and `}}` stand for braces. Throws InputError.
std::string substitute(std::string_view text, const PlanValues& values);

}  // namespace ttrace
