#include "ttrace/align/layout.h"

#include <algorithm>
#include <map>

namespace ttrace {
namespace {

std::map<std::string, Layout, std::less<>>& registry() {
  static std::map<std::string, Layout, std::less<>> layouts = {{"contiguous", contiguous}};
  return layouts;
}

// `inner` places a part in its block, `outer` the block in the whole; the result places the part in the
// whole. Where a stretch of the one crosses several of the other it falls into pieces.
std::vector<Stretch> compose(const std::vector<Stretch>& inner, const std::vector<Stretch>& outer) {
  std::vector<Stretch> result;
  for (const Stretch& a : inner) {
    const std::int64_t end = a.logical + a.size;
    auto b = std::partition_point(outer.begin(), outer.end(),
                                  [&](const Stretch& s) { return s.local + s.size <= a.logical; });
    for (; b != outer.end() && b->local < end; ++b) {
      const std::int64_t from = std::max(a.logical, b->local);
      const std::int64_t to = std::min(end, b->local + b->size);
      result.push_back({a.local + from - a.logical, b->logical + from - b->local, to - from});
    }
  }
  return result;
}

}  // namespace

AxisLayout contiguous(const AxisParts& parts) {
  AxisLayout layout;
  for (const std::int64_t size : parts.sizes) {
    layout.parts.emplace_back();
    if (size > 0) layout.parts.back().push_back({0, layout.extent, size});
    layout.extent += size;
  }
  return layout;
}

void register_layout(std::string name, Layout layout) { registry()[std::move(name)] = layout; }

Layout find_layout(std::string_view name) {
  const auto found = registry().find(name);
  return found == registry().end() ? nullptr : found->second;
}

std::vector<std::string> layout_names() {
  std::vector<std::string> names;
  for (const auto& [name, layout] : registry()) names.push_back(name);
  return names;
}

AxisLayout nest(std::span<const AxisSplit> axes, std::span<const std::int64_t> sizes) {
  if (axes.empty()) return contiguous({sizes});
  if (axes.size() == 1) return axes[0].layout({sizes});
  const std::size_t block = sizes.size() / static_cast<std::size_t>(axes[0].size);
  std::vector<AxisLayout> blocks;
  std::vector<std::int64_t> extents;
  for (std::size_t begin = 0; begin < sizes.size(); begin += block) {
    blocks.push_back(nest(axes.subspan(1), sizes.subspan(begin, block)));
    extents.push_back(blocks.back().extent);
  }
  const AxisLayout outer = axes[0].layout({extents});
  AxisLayout whole{outer.extent, {}};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (const std::vector<Stretch>& part : blocks[i].parts) whole.parts.push_back(compose(part, outer.parts[i]));
  }
  return whole;
}

}  // namespace ttrace
