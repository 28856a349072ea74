#include "annotate/row_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>

namespace ttrace {
namespace {

// Rows of one part, one after the other.
struct Run {
  std::size_t part = 0;
  std::int64_t length = 0;
};

struct Runs {
  std::vector<Run> runs;
  std::int64_t padding = 0;  // rows at the end that are of no part
};

// Rows of which nothing is known belong to the run before them.
Runs runs_of(const RowMap& map) {
  Runs found;
  std::int64_t last = -1;
  for (std::size_t i = 0; i < map.part.size(); ++i) {
    if (map.part[i] >= 0) last = static_cast<std::int64_t>(i);
  }
  for (std::int64_t i = 0; i <= last; ++i) {
    const std::int64_t part = map.part[static_cast<std::size_t>(i)];
    if (part >= 0 && (found.runs.empty() || found.runs.back().part != static_cast<std::size_t>(part))) {
      found.runs.push_back({static_cast<std::size_t>(part), 0});
    }
    if (!found.runs.empty()) ++found.runs.back().length;
  }
  found.padding = static_cast<std::int64_t>(map.part.size()) - last - 1;
  return found;
}

// Returns how often the same runs follow each other; nothing where they differ.
std::optional<std::int64_t> groups_of(const Runs& found, std::size_t parts) {
  if (found.runs.size() % parts != 0) return std::nullopt;
  std::set<std::size_t> seen;
  for (std::size_t i = 0; i < found.runs.size(); ++i) {
    const Run &run = found.runs[i], &first = found.runs[i % parts];
    if (run.part != first.part || run.length != first.length) return std::nullopt;
    seen.insert(run.part);
  }
  if (seen.size() != parts) return std::nullopt;
  return static_cast<std::int64_t>(found.runs.size() / parts);
}

// Says how the rows of a part lie in the whole.
enum class Rotary : std::uint8_t { kNone, kHalvesToPairs, kPairsToHalves, kOther };
struct Order {
  Rotary rotary = Rotary::kNone;
  std::int64_t pairs = 0;  // of a head
};

// The place in a head of 2 * `pairs` rows, interleaved, of a row of a head in halves.
std::int64_t interleaved(std::int64_t row, std::int64_t pairs) {
  const std::int64_t head = row / (2 * pairs), inside = row % (2 * pairs);
  return head * 2 * pairs + (inside % pairs) * 2 + inside / pairs;
}

// Returns the rows of a part in the order in which the whole has them; -1 where that is not known.
std::vector<std::int64_t> rows_taken(const RowMap& map, std::size_t part, std::int64_t rows) {
  std::vector<std::int64_t> taken;
  for (std::size_t r = 0; r < map.part.size() && static_cast<std::int64_t>(taken.size()) < rows; ++r) {
    if (map.part[r] == static_cast<std::int64_t>(part)) taken.push_back(map.row[r]);
  }
  taken.resize(static_cast<std::size_t>(rows), -1);  // after unknown ones: values decide
  return taken;
}

Order order_of(const std::vector<std::int64_t>& rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const auto follows = [&](auto place) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = rows[static_cast<std::size_t>(i)];
      if (row >= 0 && !place(i, row)) return false;
    }
    return true;
  };
  if (follows([](std::int64_t i, std::int64_t row) { return i == row; })) return {};
  for (std::int64_t pairs = 2; 2 * pairs <= count; ++pairs) {
    if (count % (2 * pairs) != 0) continue;
    if (follows([&](std::int64_t i, std::int64_t row) { return i == interleaved(row, pairs); })) {
      return {Rotary::kHalvesToPairs, pairs};
    }
    if (follows([&](std::int64_t i, std::int64_t row) { return row == interleaved(i, pairs); })) {
      return {Rotary::kPairsToHalves, pairs};
    }
  }
  return {Rotary::kOther, 0};
}

// Returns the order of the rows of each part, as the runs of the first group have the parts; nothing where one is in
// another order than is known, or not as long as its runs.
std::optional<std::vector<Order>> orders_of(const RowMap& map, std::span<const Run> group, std::int64_t groups,
                                            std::span<const std::int64_t> rows) {
  std::vector<Order> orders;
  for (const Run& run : group) {
    if (run.length * groups != rows[run.part]) return std::nullopt;
    orders.push_back(order_of(rows_taken(map, run.part, rows[run.part])));
    if (orders.back().rotary == Rotary::kOther) return std::nullopt;
  }
  return orders;
}

// Returns the length of the shortest run, where it divides those of all.
std::optional<std::int64_t> head_of(std::span<const Run> group) {
  const auto is_shorter = [](const Run& a, const Run& b) { return a.length < b.length; };
  const std::int64_t head = std::min_element(group.begin(), group.end(), is_shorter)->length;
  const bool divides = std::all_of(group.begin(), group.end(), [&](const Run& run) { return run.length % head == 0; });
  return divides ? std::optional(head) : std::nullopt;
}

std::string product(const std::vector<std::string>& axes) {
  if (axes.empty()) return "1";
  return axes.size() == 1 ? axes.front() : fmt::format("({})", fmt::join(axes, " "));
}

// Names the axes of one pattern.
class AxisNames {
 public:
  explicit AxisNames(std::map<std::string, std::int64_t>& sizes) : sizes_(sizes) {}

  // The same size with the same letter has the same name.
  std::string name(const std::string& letter, std::int64_t size) {
    std::string name = letter;
    for (int n = 2; sizes_.contains(name) && sizes_.at(name) != size; ++n) name = fmt::format("{}{}", letter, n);
    sizes_.emplace(name, size);
    return name;
  }

 private:
  std::map<std::string, std::int64_t>& sizes_;
};

// The axes of a part inside a group, as the part and as the whole have them.
struct Inside {
  std::vector<std::string> part, whole;
};

Inside inside_of(const Order& order, std::int64_t rows, std::optional<std::int64_t> head, bool grouped,
                 AxisNames& names) {
  if (order.rotary != Rotary::kNone) {
    const std::int64_t heads = rows / (2 * order.pairs);
    Inside inside;
    if (heads > 1 || !grouped) inside.part = {names.name(grouped ? "n" : "h", heads)};
    inside.whole = inside.part;
    const std::string two = names.name("two", 2), pairs = names.name("p", order.pairs);
    const bool to_pairs = order.rotary == Rotary::kHalvesToPairs;
    for (const std::string& axis : {two, pairs}) (to_pairs ? inside.part : inside.whole).push_back(axis);
    for (const std::string& axis : {pairs, two}) (to_pairs ? inside.whole : inside.part).push_back(axis);
    return inside;
  }
  std::vector<std::string> axes;
  if (!grouped || !head) {
    axes = {names.name("f", rows)};
  } else {
    if (rows > *head) axes.push_back(names.name("n", rows / *head));
    axes.push_back(names.name("d", *head));
  }
  return {axes, axes};
}

}  // namespace

std::vector<std::uint64_t> hash_rows(const Values& values, const Shape& shape, bool transposed) {
  if (shape.empty()) return {};
  const auto last = static_cast<std::size_t>(shape.back());
  const auto before = shape.size() > 1 ? static_cast<std::size_t>(shape[shape.size() - 2]) : 1;
  const std::size_t length = transposed ? before : last;
  if (length == 0 || values.empty()) return {};
  std::vector<std::uint64_t> hashes(values.size() / length);
  Values row(length);
  for (std::size_t r = 0; r < hashes.size(); ++r) {
    for (std::size_t i = 0; i < length; ++i) {
      row[i] = 0.0 + (transposed ? values[(r / last * before + i) * last + r % last] : values[r * last + i]);
    }
    if (std::all_of(row.begin(), row.end(), [&](double value) { return value == row.front(); })) continue;
    const std::string_view bytes(reinterpret_cast<const char*>(row.data()), length * sizeof(double));
    hashes[r] = std::max<std::uint64_t>(std::hash<std::string_view>()(bytes), 1);
  }
  return hashes;
}

std::optional<RowPattern> row_pattern(const RowMap& map, std::span<const std::int64_t> rows) {
  const Runs found = runs_of(map);
  const std::optional<std::int64_t> groups = groups_of(found, rows.size());
  if (!groups) return std::nullopt;
  const bool grouped = *groups > 1;
  if (grouped && found.padding > 0) return std::nullopt;  // padding is the last term of a whole dimension
  const std::span<const Run> group_runs = std::span(found.runs).first(rows.size());
  const std::optional<std::vector<Order>> orders = orders_of(map, group_runs, *groups, rows);
  if (!orders) return std::nullopt;
  const std::optional<std::int64_t> head = head_of(group_runs);
  RowPattern pattern;
  for (const Run& run : group_runs) pattern.order.push_back(run.part);
  if (std::any_of(orders->begin(), orders->end(), [](const Order& one) { return one.rotary != Rotary::kNone; })) {
    pattern.remark =
        "pairs of neighbours on one side, halves of a head on the other: right only where the rotary "
        "embeddings differ so";
  }
  AxisNames names(pattern.sizes);
  const std::string group = grouped ? names.name("g", *groups) : "";
  std::vector<Inside> inside;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    inside.push_back(inside_of((*orders)[i], group_runs[i].length, head, grouped, names));
    std::vector<std::string> axes = inside.back().part;
    if (grouped) axes.insert(axes.begin(), group);
    pattern.parts.push_back(product(axes));
  }
  std::vector<std::string> terms;
  for (const Inside& one : inside) terms.push_back(product(one.whole));
  if (found.padding > 0) {
    terms.emplace_back("_");
    pattern.remark =
        fmt::format("{} more rows, which the other side has not: padding, unless they were lost there", found.padding);
  }
  const std::string sum = terms.size() == 1 ? terms.front() : fmt::format("({})", fmt::join(terms, " + "));
  pattern.whole = grouped ? fmt::format("({} {})", group, sum) : sum;
  return pattern;
}

}  // namespace ttrace
