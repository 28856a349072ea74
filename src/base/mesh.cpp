#include "base/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace ttrace {

bool is_axis_name(std::string_view text) {
  const auto word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !text.empty() && text[0] >= 'a' && text[0] <= 'z' && std::all_of(text.begin(), text.end(), word);
}

namespace {

constexpr std::size_t kMaxFurtherFactorings = 3;  // each costs a table of all ranks; two are known to be of use

const Axis* find_axis(const Axes& axes, std::string_view name) {
  const auto found = std::find_if(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.name == name; });
  return found == axes.end() ? nullptr : &*found;
}

std::vector<std::string> items_of(const Axes& axes) {
  std::vector<std::string> items;
  for (const Axis& axis : axes) items.push_back(fmt::format("{}={}", axis.name, axis.size));
  return items;
}

// Ranks from one coordinate of the axis to the next.
std::int64_t stride_of(const Axes& axes, std::string_view name) {
  std::int64_t stride = 1;
  for (const Axis& axis : axes) {
    if (axis.name == name) break;
    stride *= axis.size;
  }
  return stride;
}

// One factoring of the ranks: `tp=2,dp=2,sp=tp`. Its aliases go to the mesh, which holds those before it.
Axes parse_factoring(std::string_view text, std::int32_t world_size, std::string_view where, Mesh& mesh) {
  Axes axes;
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
    if (find_axis(axes, name) != nullptr || mesh.aliases.contains(name)) {
      throw InputError(fmt::format("{}: axis '{}' appears twice; expected each axis once", where, name));
    }
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), size);
    if (error != std::errc() || end != value.data() + value.size()) {
      if (find_axis(axes, value) == nullptr) {
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
    axes.push_back({name, size});
    product *= size;
    if (product > world_size) break;
  }
  if (product != world_size) {
    throw InputError(fmt::format("{}: the axes '{}' make {}{} ranks; the run has {}", where, text,
                                 product > world_size ? "at least " : "", product, world_size));
  }
  return axes;
}

void check_common_axes(const Axes& earlier, const Axes& factoring, std::string_view where) {
  for (const Axis& axis : factoring) {
    const Axis* same = find_axis(earlier, axis.name);
    if (same == nullptr) continue;
    if (*same != axis || stride_of(earlier, axis.name) != stride_of(factoring, axis.name)) {
      throw InputError(
          fmt::format("{}: axis '{}' has another size or place in '{}' than in '{}'; expected the same "
                      "coordinate on every rank",
                      where, axis.name, to_string(factoring), to_string(earlier)));
    }
  }
}

}  // namespace

Mesh parse_mesh(std::string_view text, std::int32_t world_size, std::string_view where) {
  Mesh mesh;
  std::string_view item = text.substr(0, text.find('/'));
  mesh.axes = parse_factoring(item, world_size, where, mesh);
  for (std::string_view rest = text.substr(item.size()); !rest.empty(); rest.remove_prefix(item.size())) {
    rest.remove_prefix(1);
    item = rest.substr(0, rest.find('/'));
    if (mesh.further_factorings.size() == kMaxFurtherFactorings) {
      throw InputError(fmt::format("{}: too many factorings of the ranks; expected at most {} after the first", where,
                                   kMaxFurtherFactorings));
    }
    const Axes factoring = parse_factoring(item, world_size, where, mesh);
    for (const Axes& earlier : factorings_of(mesh)) check_common_axes(earlier, factoring, where);
    mesh.further_factorings.push_back(factoring);
  }
  for (const Axis& axis : all_axes(mesh)) {
    if (mesh.aliases.contains(axis.name)) {
      throw InputError(fmt::format("{}: axis '{}' appears twice; expected each axis once", where, axis.name));
    }
  }
  return mesh;
}

std::int32_t ranks_of_mesh(std::string_view text) {
  text = text.substr(0, text.find('/'));
  std::int64_t product = 1;
  for (std::size_t equals = text.find('='); equals < text.size(); equals = text.find('=', equals + 1)) {
    std::int64_t size = 1;
    std::from_chars(text.data() + equals + 1, text.data() + text.size(), size);
    if (size > 0 && size <= INT32_MAX / product) product *= size;
  }
  return static_cast<std::int32_t>(product);
}

std::string to_string(const Mesh& mesh) {
  const std::vector<Axes> factorings = factorings_of(mesh);
  std::vector<std::string> texts;
  Aliases aliases = mesh.aliases;
  for (const Axes& axes : factorings) {
    std::vector<std::string> items = items_of(axes);
    // An alias follows its axis, where that comes first; one of nothing stands last, to be refused when read.
    const bool last = texts.size() + 1 == factorings.size();
    std::erase_if(aliases, [&](const auto& alias) {
      const bool here = last || find_axis(axes, alias.second) != nullptr;
      if (here) items.push_back(fmt::format("{}={}", alias.first, alias.second));
      return here;
    });
    texts.push_back(fmt::format("{}", fmt::join(items, ",")));
  }
  return fmt::format("{}", fmt::join(texts, "/"));
}

std::string to_string(const Axes& axes) { return fmt::format("{}", fmt::join(items_of(axes), ",")); }

Coordinates coordinates_of(const Axes& axes, std::int32_t rank) {
  Coordinates coordinates;
  std::int64_t rest = rank;
  for (const Axis& axis : axes) {
    coordinates[axis.name] = rest % axis.size;
    rest /= axis.size;
  }
  return coordinates;
}

Coordinates coordinates_of(const Mesh& mesh, std::int32_t rank) {
  Coordinates coordinates;
  for (const Axes& axes : factorings_of(mesh)) coordinates.merge(coordinates_of(axes, rank));
  return coordinates;
}

std::vector<Axes> factorings_of(const Mesh& mesh) {
  std::vector<Axes> factorings = {mesh.axes};
  factorings.insert(factorings.end(), mesh.further_factorings.begin(), mesh.further_factorings.end());
  return factorings;
}

Axes all_axes(const Mesh& mesh) {
  Axes axes = mesh.axes;
  for (const Axes& factoring : mesh.further_factorings) {
    std::copy_if(factoring.begin(), factoring.end(), std::back_inserter(axes),
                 [&](const Axis& axis) { return find_axis(axes, axis.name) == nullptr; });
  }
  return axes;
}

std::int64_t size_of_axis(const Mesh& mesh, const std::string& axis) {
  const auto alias = mesh.aliases.find(axis);
  const Axes axes = all_axes(mesh);
  const Axis* found = find_axis(axes, alias == mesh.aliases.end() ? axis : alias->second);
  return found == nullptr ? 1 : found->size;
}

}  // namespace ttrace
