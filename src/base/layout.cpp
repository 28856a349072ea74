#include "base/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace ttrace {
namespace {

using Registry = std::map<std::string, Layout, std::less<>>;

Registry& registry() {
  static const std::vector<std::string> heads = {"query_heads", "kv_heads"};
  static Registry layouts = {
      {"contiguous", {.function = contiguous, .recordable = true, .of_slices = true}},
      {"zigzag", {.function = zigzag}},
      {"striped", {.function = striped, .of_slices = true}},
      {"stacked", {.function = stacked, .options = {"blocks"}, .recordable = true}},
      {"kv_heads", {.function = kv_heads, .options = heads, .parts_share_elements = true}},
      {"qkv_heads", {.function = qkv_heads, .options = heads, .parts_share_elements = true}},
      {"halo", {.function = halo, .options = {"overlap"}, .parts_share_elements = true}},
  };
  return layouts;
}

// `inner` says where a part lies in its block, and `outer` where the block lies in the whole; the result says where the
// part lies in the whole. A stretch of one that crosses several stretches of the other is cut.
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

std::string listed(std::span<const std::int64_t> sizes) { return fmt::format("{}", fmt::join(sizes, ", ")); }

// Lays out each segment by itself. A part holds its share of the first segment, of the second, and so on; elements
// behind the last segment are padding.
AxisLayout lay_out_segments(const AxisSplit& axis, std::span<const std::int64_t> sizes) {
  const auto parts = static_cast<std::int64_t>(sizes.size());
  const std::vector<Segment>& segments = *axis.segments;
  const std::int64_t total = segments.empty() ? 0 : segments.back().start + segments.back().padded;
  const std::int64_t held = *std::min_element(sizes.begin(), sizes.end()) * parts;
  if (total > held) {
    throw LayoutError(
        fmt::format("packed sequences of {} elements in parts of {}; expected room for all", total, listed(sizes)));
  }
  AxisLayout whole{0, std::vector<std::vector<Stretch>>(sizes.size())};
  for (const Segment& segment : segments) {
    if (segment.padded % parts != 0) {
      throw LayoutError(fmt::format("a packed sequence of {} elements on {} parts; expected a multiple of that",
                                    segment.padded, parts));
    }
    const std::vector<std::int64_t> shares(sizes.size(), segment.padded / parts);
    AxisLayout layout = axis.layout->function({shares, axis.options});
    cut_padding(layout, segment.size);
    for (std::size_t part = 0; part < sizes.size(); ++part) {
      for (const Stretch& stretch : layout.parts[part]) {
        whole.parts[part].push_back(
            {segment.start / parts + stretch.local, whole.extent + stretch.logical, stretch.size});
      }
    }
    whole.extent += segment.size;
  }
  return whole;
}

// Lays out whole samples, part by part as they were dealt.
AxisLayout lay_out_samples(const std::vector<std::int64_t>& samples, std::span<const std::int64_t> sizes) {
  AxisLayout layout;
  layout.extent = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  const std::int64_t unit = layout.extent / static_cast<std::int64_t>(samples.size());
  auto next = samples.begin();
  for (const std::int64_t size : sizes) {
    std::vector<Stretch>& stretches = layout.parts.emplace_back();
    if (unit == 0 || size % unit != 0 || size / unit > samples.end() - next) {
      throw LayoutError(
          fmt::format("parts of {}; expected whole samples, of which there are {}", listed(sizes), samples.size()));
    }
    for (std::int64_t local = 0; local < size; local += unit, ++next) {
      const std::int64_t logical = *next * unit;
      if (!stretches.empty() && stretches.back().logical + stretches.back().size == logical) {
        stretches.back().size += unit;
      } else {
        stretches.push_back({local, logical, unit});
      }
    }
  }
  return layout;
}

AxisLayout lay_out_axis(const AxisSplit& axis, std::span<const std::int64_t> sizes) {
  if (!axis.samples.empty()) return lay_out_samples(axis.samples, sizes);
  return axis.segments ? lay_out_segments(axis, sizes) : axis.layout->function({sizes, axis.options});
}

// The numbers of heads in the whole, and the heads that part `c` of `n` uses.
struct Heads {
  std::int64_t query = 1, kv = 1;

  explicit Heads(const AxisParts& parts)
      : query(parts.options.at("query_heads").at(0)), kv(parts.options.at("kv_heads").at(0)) {}

  struct Range {
    std::int64_t begin, end;
    std::int64_t count() const { return end - begin; }
  };
  Range queries(std::size_t c, std::size_t n) const {
    const auto part = static_cast<std::int64_t>(c), parts = static_cast<std::int64_t>(n);
    return {part * query / parts, (part + 1) * query / parts};
  }
  Range keys(std::size_t c, std::size_t n) const {
    const Range own = queries(c, n);
    return {own.begin * kv / query, (own.end * kv + query - 1) / query};
  }
};

// The number of elements a head, from a part that holds `heads` of them. `known` is the number that another part has
// given, or 0. Throws LayoutError where the two differ.
std::int64_t head_size(std::int64_t elements, std::int64_t heads, std::int64_t& known) {
  if (heads == 0 ? elements != 0 : elements % heads != 0 || (known > 0 && elements / heads != known)) {
    throw LayoutError(fmt::format("a part of {} elements for {} heads; expected {}", elements, heads,
                                  known > 0 ? fmt::format("{} a head", known) : "a multiple of that"));
  }
  return known = heads == 0 ? known : elements / heads;
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

AxisLayout zigzag(const AxisParts& parts) {
  if (parts.sizes.size() == 1) return contiguous(parts);
  const auto n = static_cast<std::int64_t>(parts.sizes.size());
  const std::int64_t chunk = parts.sizes[0] / 2;
  AxisLayout layout{2 * n * chunk, {}};
  for (std::int64_t c = 0; c < n; ++c) {
    if (parts.sizes[static_cast<std::size_t>(c)] != 2 * chunk) {
      throw LayoutError(
          fmt::format("parts of {} elements do not zigzag; expected equal and even parts, {} chunks in all",
                      listed(parts.sizes), 2 * n));
    }
    layout.parts.emplace_back();
    if (chunk == 0) continue;
    layout.parts.back() = {{0, c * chunk, chunk}, {chunk, (2 * n - 1 - c) * chunk, chunk}};
  }
  return layout;
}

AxisLayout stacked(const AxisParts& parts) {
  const std::vector<std::int64_t>& blocks = parts.options.at("blocks");
  const std::int64_t sum = std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
  AxisLayout layout;
  layout.extent = std::accumulate(parts.sizes.begin(), parts.sizes.end(), std::int64_t{0});
  std::int64_t before = 0;  // elements of the parts before, per relative size
  for (const std::int64_t size : parts.sizes) {
    if (size % sum != 0) {
      throw LayoutError(fmt::format("a part of {} elements in blocks of relative sizes {}; expected a multiple of {}",
                                    size, listed(blocks), sum));
    }
    layout.parts.emplace_back();
    const std::int64_t unit = size / sum;
    std::int64_t local = 0, logical = 0;
    for (const std::int64_t block : blocks) {
      if (unit > 0) layout.parts.back().push_back({local, logical + before * block, unit * block});
      local += unit * block;
      logical += layout.extent / sum * block;
    }
    before += unit;
  }
  return layout;
}

AxisLayout halo(const AxisParts& parts) {
  if (parts.sizes.size() == 1) return contiguous(parts);
  const std::int64_t overlap = parts.options.at("overlap").at(0);
  AxisLayout layout;
  for (const std::int64_t size : parts.sizes) {
    if (size <= overlap) {
      throw LayoutError(
          fmt::format("parts of {} that overlap by {}; expected longer ones", listed(parts.sizes), overlap));
    }
    const std::int64_t begin = layout.parts.empty() ? 0 : layout.extent - overlap;
    layout.parts.push_back({{0, begin, size}});
    layout.extent = begin + size;
  }
  return layout;
}

AxisLayout kv_heads(const AxisParts& parts) {
  const Heads heads(parts);
  const std::size_t n = parts.sizes.size();
  std::int64_t size = 0;
  AxisLayout layout;
  for (std::size_t c = 0; c < n; ++c) {
    const Heads::Range keys = heads.keys(c, n);
    head_size(parts.sizes[c], keys.count(), size);
    layout.parts.emplace_back();
    if (parts.sizes[c] > 0) layout.parts.back().push_back({0, keys.begin * size, parts.sizes[c]});
  }
  layout.extent = heads.kv * size;
  return layout;
}

AxisLayout qkv_heads(const AxisParts& parts) {
  const Heads heads(parts);
  const std::size_t n = parts.sizes.size();
  std::int64_t size = 0;
  AxisLayout layout;
  for (std::size_t c = 0; c < n; ++c) {
    const Heads::Range queries = heads.queries(c, n), keys = heads.keys(c, n);
    head_size(parts.sizes[c], queries.count() + 2 * keys.count(), size);
    std::vector<Stretch>& stretches = layout.parts.emplace_back();
    if (parts.sizes[c] == 0) continue;
    stretches = {{0, queries.begin * size, queries.count() * size}};
    for (const std::int64_t block : {heads.query, heads.query + heads.kv}) {
      const std::int64_t local = stretches.back().local + stretches.back().size;
      stretches.push_back({local, (block + keys.begin) * size, keys.count() * size});
    }
  }
  layout.extent = (heads.query + 2 * heads.kv) * size;
  return layout;
}

void register_layout(std::string name, Layout layout) { registry()[std::move(name)] = std::move(layout); }

const Layout* find_layout(std::string_view name) {
  const auto found = registry().find(name);
  return found == registry().end() ? nullptr : &found->second;
}

std::vector<std::string> layout_names() {
  std::vector<std::string> names;
  for (const auto& [name, layout] : registry()) names.push_back(name);
  return names;
}

std::vector<std::string> layout_names(bool Layout::* property) {
  std::vector<std::string> names = layout_names();
  std::erase_if(names, [&](const std::string& name) { return !(find_layout(name)->*property); });
  return names;
}

std::string name_of(const Layout& layout) {
  const auto found =
      std::find_if(registry().begin(), registry().end(), [&](const auto& item) { return &item.second == &layout; });
  return found->first;
}

AxisLayout nest(std::span<const AxisSplit> axes, std::span<const std::int64_t> sizes) {
  if (axes.empty()) return contiguous({sizes, {}});
  if (axes.size() == 1) return lay_out_axis(axes[0], sizes);
  const std::size_t block = sizes.size() / static_cast<std::size_t>(axes[0].size);
  std::vector<AxisLayout> blocks;
  std::vector<std::int64_t> extents;
  for (std::size_t begin = 0; begin < sizes.size(); begin += block) {
    blocks.push_back(nest(axes.subspan(1), sizes.subspan(begin, block)));
    extents.push_back(blocks.back().extent);
  }
  const AxisLayout outer = lay_out_axis(axes[0], extents);
  AxisLayout whole{outer.extent, {}};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (const std::vector<Stretch>& part : blocks[i].parts) whole.parts.push_back(compose(part, outer.parts[i]));
  }
  return whole;
}

void cut_padding(AxisLayout& layout, std::int64_t extent) {
  if (layout.extent < extent) {
    throw LayoutError(fmt::format("{} elements; expected at least {}, without padding", layout.extent, extent));
  }
  layout.extent = extent;
  for (std::vector<Stretch>& part : layout.parts) {
    for (Stretch& stretch : part) stretch.size = std::min(stretch.size, extent - stretch.logical);
    std::erase_if(part, [](const Stretch& stretch) { return stretch.size <= 0; });
  }
}

std::int32_t number_occurrences(AxisLayout& layout) {
  // All elements between two neighbouring edges have occurred equally often so far.
  std::vector<std::int64_t> edges;
  for (const std::vector<Stretch>& part : layout.parts) {
    for (const Stretch& stretch : part) edges.insert(edges.end(), {stretch.logical, stretch.logical + stretch.size});
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  std::vector<std::int32_t> occurrences(edges.size(), 0);
  std::int32_t most = 1;
  for (std::vector<Stretch>& part : layout.parts) {
    std::vector<Stretch> numbered;
    for (const Stretch& stretch : part) {
      auto edge =
          static_cast<std::size_t>(std::lower_bound(edges.begin(), edges.end(), stretch.logical) - edges.begin());
      for (; edges[edge] < stretch.logical + stretch.size; ++edge) {
        const std::int64_t size = edges[edge + 1] - edges[edge];
        const std::int32_t occurrence = occurrences[edge]++;
        most = std::max(most, occurrences[edge]);
        if (!numbered.empty() && edges[edge] != stretch.logical && numbered.back().occurrence == occurrence) {
          numbered.back().size += size;
        } else {
          numbered.push_back({stretch.local + edges[edge] - stretch.logical, edges[edge], size, occurrence});
        }
      }
    }
    part = std::move(numbered);
  }
  return most;
}

}  // namespace ttrace
