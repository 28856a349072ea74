#include "base/tensor_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace ttrace {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::size_t kMaxDigits = 9;

// The call that the name ends with. A '#' that is not followed by digits alone belongs to the key of a dict.
std::string_view call_in(std::string_view name) {
  const std::size_t mark = name.rfind('#');
  if (mark == name.npos || mark + 1 == name.size()) return {};
  return name.find_first_not_of(kDigits, mark + 1) == name.npos ? name.substr(mark) : std::string_view();
}

// The number in the component of the path that starts at `begin`, after a dot; nothing where it is no number.
std::optional<NameNumber> number_at(std::string_view path, std::size_t begin) {
  const std::size_t end = std::min(path.find('.', begin), path.size());
  const std::string_view digits = path.substr(begin, end - begin);
  if (digits.empty() || digits.size() > kMaxDigits || (digits[0] == '0' && digits.size() > 1)) return std::nullopt;
  if (digits.find_first_not_of(kDigits) != digits.npos) return std::nullopt;
  NameNumber number{path.substr(0, begin - 1), begin, end, 0};
  std::from_chars(digits.data(), digits.data() + digits.size(), number.value);
  return number;
}

}  // namespace

TensorName::TensorName(std::string_view text) : call(call_in(text)) {
  text.remove_suffix(call.size());
  path = text.substr(0, text.find(':'));
  member = text.substr(path.size());
}

std::string TensorName::with_member(std::string_view other) const { return fmt::format("{}{}{}", path, other, call); }

std::string call_of(std::string_view module, std::size_t call) {
  return call == 0 ? std::string(module) : fmt::format("{}#{}", module, call);
}

std::string_view owner_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == path.npos ? kRootModule : path.substr(0, dot);
}

std::string parameter_of(std::string_view module, std::string_view parameter) {
  return module == kRootModule ? std::string(parameter) : fmt::format("{}.{}", module, parameter);
}

bool is_inside(std::string_view path, std::string_view module) {
  if (module.ends_with(kRootModule)) {
    return path.starts_with(module.substr(0, module.size() - kRootModule.size())) && path != module;
  }
  return path.size() > module.size() && path.starts_with(module) && path[module.size()] == '.';
}

std::string further_model_of(std::string_view name) {
  constexpr std::string_view kModel = "model";
  const std::string_view first = name.substr(0, name.find('.'));
  const bool is_further = first.starts_with(kModel) && first.size() > kModel.size() &&
                          first.find_first_not_of("0123456789", kModel.size()) == std::string_view::npos;
  return is_further ? std::string(first) + "." : "";
}

std::vector<std::string> components_of(std::string_view dotted) {
  std::vector<std::string> components;
  for (std::size_t begin = 0; begin <= dotted.size();) {
    const std::size_t dot = std::min(dotted.find('.', begin), dotted.size());
    components.emplace_back(dotted.substr(begin, dot - begin));
    begin = dot + 1;
  }
  return components;
}

std::string_view last_component(std::string_view dotted) { return dotted.substr(dotted.rfind('.') + 1); }

std::vector<std::string_view> suffixes_of(std::string_view name) {
  std::vector<std::string_view> suffixes = {name};
  const std::string_view path = TensorName(name).path;
  for (std::size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1)) {
    suffixes.push_back(name.substr(dot + 1));
  }
  return suffixes;
}

std::optional<NameNumber> number_in(std::string_view name, std::size_t from) {
  const std::string_view path = TensorName(name).path;
  for (std::size_t dot = path.find('.', from); dot != path.npos; dot = path.find('.', dot + 1)) {
    if (const auto number = number_at(path, dot + 1)) return number;
  }
  return std::nullopt;
}

std::string with_any_number(std::string name) {
  for (auto number = number_in(name); number; number = number_in(name, number->begin)) {
    name.replace(number->begin, number->end - number->begin, "*");
  }
  return name;
}

std::optional<NameNumber> layer_number(std::string_view name, std::string_view layers) {
  const std::string_view path = TensorName(name).path;
  for (std::size_t at = path.find(layers); at != path.npos; at = path.find(layers, at + 1)) {
    const std::size_t end = at + layers.size();
    const bool starts = at == 0 || path[at - 1] == '.';
    if (!starts || end >= path.size() || path[end] != '.') continue;
    if (const auto number = number_at(path, end + 1)) return number;
  }
  return std::nullopt;
}

std::string without_numbers(std::string_view name) {
  std::string result;
  std::size_t done = 0;
  const auto replace = [&](std::size_t begin, std::size_t end) {
    result.append(name.substr(done, begin - done)).push_back('#');
    done = end;
  };
  const std::string_view path = TensorName(name).path;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    if (end > begin && path.substr(begin, end - begin).find_first_not_of(kDigits) == path.npos) replace(begin, end);
    begin = end + 1;
  }
  return result.append(name.substr(done));
}

std::string with_number(std::string_view name, const NameNumber& number, std::int64_t value) {
  return fmt::format("{}{}{}", name.substr(0, number.begin), value, name.substr(number.end));
}

std::vector<ElementNumber> numbers_in_member(std::string_view name) {
  std::vector<ElementNumber> numbers;
  const TensorName parts(name);
  const std::size_t end_of_member = parts.path.size() + parts.member.size();
  for (std::size_t begin = parts.path.size() + 1; begin < end_of_member;) {
    const std::size_t end = std::min(name.find('.', begin), end_of_member);
    if (const auto number = number_at(name.substr(0, end), begin)) numbers.push_back({begin, end, number->value});
    begin = end + 1;
  }
  return numbers;
}

std::int64_t number_of_call(const TensorName& name) {
  std::int64_t number = 0;
  if (!name.call.empty()) std::from_chars(name.call.data() + 1, name.call.data() + name.call.size(), number);
  return number;
}

}  // namespace ttrace
