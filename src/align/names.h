// Numbers in the names of tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ttrace {

// What the collector calls the outermost module, whose path is empty.
inline constexpr std::string_view kRootModule = "(model)";

// A component that is a number: `decoder.layers` . `1` . `mlp`. It stands at [begin, end) of the name.
struct NameNumber {
  std::string_view prefix;  // what comes before its dot
  std::size_t begin = 0, end = 0;
  std::int64_t value = 0;
};

// The first numeric component at or after `from`. Leading zeros, or more than nine digits, make no number.
std::optional<NameNumber> number_in(std::string_view name, std::size_t from = 0);

// The number right after `layers`, which starts the name or follows a dot of it.
std::optional<NameNumber> layer_number(std::string_view name, std::string_view layers);

std::string with_number(std::string_view name, const NameNumber& number, std::int64_t value);

// The module path: the name without `:member` and `#call`.
std::string_view module_path(std::string_view name);

}  // namespace ttrace
