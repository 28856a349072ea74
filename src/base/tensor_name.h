// A tensor's name, taken apart. Nothing else in the program cuts names.
//
//   name = path [member] [call]      decoder.layers.0.attn:cache.1#2
//
//   path     of a module, its components parted by dots; of a parameter, the path of its module and its own name
//   member   ':' and what leads to the tensor in a tuple or a dict: `:1`, `:hidden`, `:cache.1`
//   call     '#' and a number, of each call of the module in the micro-batch but the first: `#1` is the second
//
// src/python/ttrace_torch/ makes names: a path has neither ':' nor '#', while the keys of a dict may hold them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// The collector's name of the outermost module, whose path is empty. All other modules are inside it.
inline constexpr std::string_view kRootModule = "(model)";

// The parts point into the text, which must outlive them.
struct TensorName {
  explicit TensorName(std::string_view text);

  std::string_view path;
  std::string_view member;  // with its ':'; empty where the module has only this tensor
  std::string_view call;    // with its '#'; empty for the first call

  std::string with_member(std::string_view other) const;  // of the same call: `:0` makes `attn:0#2` of `attn:1#2`
  std::string without_member() const { return with_member({}); }
};

// The name of a call of a module, counted from 0.
std::string call_of(std::string_view module, std::size_t call);

// The module that a parameter or a module belongs to directly; kRootModule where the path has one component.
std::string_view owner_of(std::string_view path);

// The path of a parameter that belongs to the module directly.
std::string parameter_of(std::string_view module, std::string_view parameter);

// True when a module or a parameter is inside the module, at any depth. No module is inside itself. What is of a
// further model is inside `model1.(model)`.
bool is_inside(std::string_view path, std::string_view module);

std::vector<std::string> components_of(std::string_view dotted);
std::string_view last_component(std::string_view dotted);

// `model1.` of `model1.0.weight`, of the second model that a program runs; empty for what is of the first model, or of none.
std::string further_model_of(std::string_view name);

// The name, and the name without the first component of its path, without the first two, and so on.
std::vector<std::string_view> suffixes_of(std::string_view name);

// A component of the path that is a number: `decoder.layers` . `1` . `mlp`. It stands at [begin, end) of the name.
struct NameNumber {
  std::string_view prefix;  // what comes before its dot
  std::size_t begin = 0, end = 0;
  std::int64_t value = 0;
};

// The first number at or after `from`. The first component never counts as a number, nor does one with leading zeros or
// with more than nine digits.
std::optional<NameNumber> number_in(std::string_view name, std::size_t from = 0);

// The name with '*' for each number that `number_in` finds: a pattern of the same tensor of all layers.
std::string with_any_number(std::string name);

// The number right after `layers`, which must begin the name or follow one of its dots.
std::optional<NameNumber> layer_number(std::string_view name, std::string_view layers);

// The name with '#' for each component that is a number: equal for the same tensor of all layers.
std::string without_numbers(std::string_view name);

std::string with_number(std::string_view name, const NameNumber& number, std::int64_t value);

// A number in the name's member, which stands at [begin, end) of the name: of an element of a list, as `1` in `:1.boxes`.
struct ElementNumber {
  std::size_t begin = 0, end = 0;
  std::int64_t value = 0;
};

// Returns the outermost first.
std::vector<ElementNumber> numbers_in_member(std::string_view name);

// Counts from 0; a name of the first call has none.
std::int64_t number_of_call(const TensorName& name);

}  // namespace ttrace
