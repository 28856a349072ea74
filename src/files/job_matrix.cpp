#include "files/job_matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace ttrace {
namespace {

constexpr std::size_t kMostCombinations = 10'000;

std::vector<Combination> product_of(const JobMatrix& matrix, const std::string& file) {
  if (matrix.variables.empty()) return {};
  std::vector<Combination> product = {{}};
  for (const auto& [name, values] : matrix.variables) {
    if (product.size() * values.size() > kMostCombinations) {
      fail_at(file, matrix.line,
              fmt::format("a matrix of more than {} combinations; expected fewer", kMostCombinations));
    }
    std::vector<Combination> longer;
    for (const Combination& combination : product) {
      for (const std::string& value : values) {
        longer.push_back(combination);
        longer.back().emplace(name, value);
      }
    }
    product = std::move(longer);
  }
  return product;
}

// True where the two have no name with different values.
bool agree(const Combination& combination, const Combination& values) {
  return std::all_of(values.begin(), values.end(), [&](const auto& item) {
    const auto found = combination.find(item.first);
    return found == combination.end() || found->second == item.second;
  });
}

// Refuses an entry of `exclude` that removes nothing.
void require_removal(const JobMatrix::Entry& entry, const JobMatrix& matrix, const std::vector<Combination>& product,
                     const std::string& file) {
  std::vector<std::string> names, values;
  for (const JobMatrix::Variable& variable : matrix.variables) names.push_back(variable.name);
  for (const auto& [name, value] : entry.values) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      fail_at(
          file, entry.line,
          fmt::format("exclude: '{}' is no variable of the matrix [{}]; expected one", name, fmt::join(names, ", ")));
    }
    values.push_back(fmt::format("{}: {}", name, value));
  }
  if (std::none_of(product.begin(), product.end(), [&](const auto& item) { return agree(item, entry.values); })) {
    fail_at(file, entry.line,
            fmt::format("exclude: no combination has {{{}}}; expected values of the matrix", fmt::join(values, ", ")));
  }
}

// Adds the entries of `include` to the combinations of the variables.
void add_included(const std::vector<JobMatrix::Entry>& include, std::vector<Combination>& combinations) {
  const std::vector<Combination> of_variables = combinations;
  for (const JobMatrix::Entry& entry : include) {
    bool added = false;
    for (std::size_t i = 0; i < of_variables.size(); ++i) {
      if (!agree(of_variables[i], entry.values)) continue;
      for (const auto& [name, value] : entry.values) combinations[i][name] = value;
      added = true;
    }
    if (!added) combinations.push_back(entry.values);
  }
}

const std::string& value_for(const std::string& name, const Combination& values, std::string_view where) {
  const auto found = values.find(name);
  if (found != values.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [other, value] : values) known.push_back(other);
  throw InputError(fmt::format("{}: '{{{}}}' is none of [{}]; expected one, or {{{{ and }}}} for braces", where, name,
                               fmt::join(known, ", ")));
}

}  // namespace

bool is_variable_name(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_inside = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-'; };
  return !text.empty() && is_letter(text[0]) && std::all_of(text.begin(), text.end(), is_inside);
}

std::vector<Combination> combinations_of(const JobMatrix& matrix, const std::string& file) {
  if (matrix.variables.empty() && matrix.exclude.empty() && matrix.include.empty()) return {{}};
  const std::vector<Combination> product = product_of(matrix, file);
  std::vector<Combination> combinations = product;
  for (const JobMatrix::Entry& entry : matrix.exclude) {
    require_removal(entry, matrix, product, file);
    std::erase_if(combinations, [&](const Combination& item) { return agree(item, entry.values); });
  }
  add_included(matrix.include, combinations);
  if (combinations.empty()) fail_at(file, matrix.line, "exclude: removes every combination; expected one that is left");
  return combinations;
}

std::string substitute(std::string_view text, const Combination& values, std::string_view where) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '{' && text[i] != '}') {
      result += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == text[i]) {
      result += text[i++];
    } else {
      const std::size_t end = text[i] == '{' ? text.find('}', i) : text.npos;
      if (end == text.npos) {
        throw InputError(fmt::format("{}: '{}': a single '{}'; expected {{name}}, or {{{{ and }}}} for braces", where,
                                     text, text[i]));
      }
      result += value_for(std::string(text.substr(i + 1, end - i - 1)), values, where);
      i = end;
    }
  }
  return result;
}

}  // namespace ttrace
