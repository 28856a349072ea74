// A matrix of variables: each combination of their values makes one candidate. The words and their meaning are those of
// GitHub Actions:
//
//   matrix:
//     tp: [1, 2]
//     dp: [1, 2]
//     exclude:
//       - {tp: 1, dp: 1}             # removes every combination that has all of these values
//     include:
//       - {tp: 2, flags: --sp}       # adds `flags` to every combination that has tp=2
//       - {tp: 8, dp: 1, flags: ""}  # no combination has these values: becomes one more
//
// All of `exclude` is applied first, then `include` in the order written. An entry of `include` adds its values to each
// combination of the variables that it does not contradict, and becomes a combination of its own where it contradicts
// all of them; later entries add nothing to that one. An entry may overwrite what an earlier one has added, but never
// the value of a variable.
//
// Values are text: 1 and "1" are the same, 1 and 01 are not.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

using Combination = std::map<std::string, std::string>;  // name -> value

struct JobMatrix {
  struct Variable {
    std::string name;
    std::vector<std::string> values;
  };
  struct Entry {
    Combination values;
    int line = 0;
  };
  std::vector<Variable> variables;  // in the order written
  std::vector<Entry> exclude, include;
  int line = 0;
};

// True for a letter, then letters, digits, '_' and '-'.
bool is_variable_name(std::string_view text);

// Returns the combinations that are left, the last variable fastest, then those that `include` makes. An empty matrix
// has one, without values. Throws InputError (`file:line`) for an entry of `exclude` that removes nothing, for more
// than 10,000 combinations, and where none is left.
std::vector<Combination> combinations_of(const JobMatrix& matrix, const std::string& file);

// Replaces each `{name}` in `text` by its value; `{{` and `}}` stand for braces. Throws InputError, about `where`,
// for a name that `values` lacks and for a single brace.
std::string substitute(std::string_view text, const Combination& values, std::string_view where);

}  // namespace ttrace
