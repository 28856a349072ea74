#include "base/describe.h"

#include <fmt/format.h>

#include <algorithm>

namespace ttrace {
namespace {

constexpr std::size_t kMaxListed = 8;  // so that a list still reads as one line

// The options of a layout, as a rule has them: `, overlap: 3`.
std::string describe_options(const LayoutOptions& options) {
  std::string text;
  for (const auto& [name, numbers] : options) {
    const std::string words = fmt::format("{}", fmt::join(numbers, ", "));
    text += fmt::format(", {}: {}", name, numbers.size() == 1 ? words : fmt::format("[{}]", words));
  }
  return text;
}

}  // namespace

std::string comma_list(std::span<const std::string> items) {
  const std::string text = fmt::format("{}", fmt::join(items.first(std::min(items.size(), kMaxListed)), ", "));
  return items.size() <= kMaxListed ? text : fmt::format("{}, ... ({} in all)", text, items.size());
}

std::string describe_ranks(std::span<const std::int32_t> ranks) {
  std::vector<std::string> words;
  for (const std::int32_t rank : ranks) words.push_back(rank < 0 ? "unknown" : std::to_string(rank));
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", comma_list(words));
}

std::string describe(const Box& box) {
  std::vector<std::string> ranges;
  for (std::size_t d = 0; d < box.start.size(); ++d) {
    ranges.push_back(fmt::format("{}:{}", box.start[d], box.start[d] + box.size[d]));
  }
  return fmt::format("[{}]", fmt::join(ranges, ", "));
}

std::string describe_layout(const AxisPlacement& axis) { return axis.layout + describe_options(axis.options); }

std::string describe_split(const AxisPlacement& axis) {
  return fmt::format("{} splits dimension {}{}{}", axis.axis, axis.dim,
                     axis.layout == "contiguous" ? "" : fmt::format(", {}", describe_layout(axis)),
                     axis.unpadded ? ", padded behind the reference's end" : "");
}

bool is_placed_by_shape(const LogicalTensor& tensor) {
  return std::any_of(tensor.deduced.begin(), tensor.deduced.end(),
                     [](const AxisPlacement& axis) { return axis.placement == Placement::kShard; });
}

std::string annotation_line(const TensorId& id, std::span<const AxisPlacement> axes) {
  std::vector<std::string> words;
  for (const AxisPlacement& axis : axes) {
    if (axis.placement == Placement::kShard) {
      const bool has_options = !axis.options.empty();
      words.push_back(fmt::format("{}: {{dim: {}, layout: {}{}}}", axis.axis, axis.dim,
                                  has_options ? describe_layout(axis) : "...",
                                  axis.unpadded ? ", unpadded: reference" : ""));
    } else {
      const char* const terms = axis.mean ? "mean" : "partial";
      words.push_back(fmt::format("{}: {}", axis.axis, axis.placement == Placement::kPartial ? terms : "replicate"));
    }
  }
  const std::string placements = fmt::format("{{{}}}", fmt::join(words, ", "));
  // A parameter lies as its gradient does, but only that is a term of a sum.
  const bool are_terms = std::any_of(axes.begin(), axes.end(),
                                     [](const AxisPlacement& axis) { return axis.placement == Placement::kPartial; });
  const bool is_of_all_kinds = is_parameter_kind(id.kind) && !are_terms;
  return fmt::format("{}: {}", printable(id.name),
                     is_of_all_kinds ? placements : fmt::format("{{{}: {}}}", name_of(id.kind), placements));
}

std::string placing_of(const LogicalTensor& tensor) {
  if (!tensor.doubt.empty()) return "; " + tensor.doubt;
  std::vector<AxisPlacement> shards;
  std::vector<std::string> splits;
  for (const AxisPlacement& axis : tensor.deduced) {
    if (axis.placement != Placement::kShard) continue;
    shards.push_back(axis);
    splits.push_back(describe_split(axis));
  }
  if (shards.empty()) return "";
  return fmt::format("; placed by its shape: {}; where that is wrong, a line of the annotations says it: {}",
                     fmt::join(splits, ", "), annotation_line(tensor.id, shards));
}

}  // namespace ttrace
