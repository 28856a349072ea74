#include "ttrace/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ttrace/error.h"

namespace ttrace {
namespace {

bool has_axis(const Axes& axes, std::string_view name) {
  return std::any_of(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.name == name; });
}

}  // namespace

bool is_axis_name(std::string_view text) {
  const auto word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !text.empty() && text[0] >= 'a' && text[0] <= 'z' && std::all_of(text.begin(), text.end(), word);
}

Mesh parse_mesh(std::string_view text, std::int32_t world_size, std::string_view where) {
  Mesh mesh;
  std::int64_t product = 1;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    const std::string name(item.substr(0, equals));
    const std::string value(equals == item.npos ? std::string_view() : item.substr(equals + 1));
    if (!is_axis_name(name) || value.empty()) {
      throw InputError(fmt::format("{}: '{}': expected name=size or name=axis, as in tp=2,dp=2,sp=tp", where, item));
    }
    if (has_axis(mesh.axes, name) || mesh.aliases.contains(name)) {
      throw InputError(fmt::format("{}: axis '{}' appears twice; expected each axis once", where, name));
    }
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), size);
    if (error != std::errc() || end != value.data() + value.size()) {
      if (!has_axis(mesh.axes, value)) {
        throw InputError(
            fmt::format("{}: '{}': '{}' is neither a size nor an axis named before it", where, item, value));
      }
      mesh.aliases[name] = value;
      continue;
    }
    if (size < 1 || size > world_size) {
      throw InputError(fmt::format("{}: axis '{}' has size {}; expected 1 to {}, the number of ranks", where, name,
                                   size, world_size));
    }
    mesh.axes.push_back({name, size});
    product *= size;
    if (product > world_size) break;
  }
  if (product != world_size) {
    throw InputError(fmt::format("{}: the axes '{}' make {}{} ranks; the run has {}", where, text,
                                 product > world_size ? "at least " : "", product, world_size));
  }
  return mesh;
}

std::string to_string(const Mesh& mesh) {
  std::string text;
  for (const Axis& axis : mesh.axes) text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis.name, axis.size);
  for (const auto& [name, axis] : mesh.aliases) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, axis);
  return text;
}

Coordinates coordinates_of(const Axes& axes, std::int32_t rank) {
  Coordinates coordinates;
  std::int64_t rest = rank;
  for (const Axis& axis : axes) {
    coordinates[axis.name] = rest % axis.size;
    rest /= axis.size;
  }
  return coordinates;
}

std::int64_t size_of_axis(const Mesh& mesh, const std::string& axis) {
  const auto alias = mesh.aliases.find(axis);
  const std::string& name = alias == mesh.aliases.end() ? axis : alias->second;
  for (const Axis& candidate : mesh.axes) {
    if (candidate.name == name) return candidate.size;
  }
  return 1;
}

}  // namespace ttrace
