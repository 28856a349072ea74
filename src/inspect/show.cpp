#include "inspect/show.h"

#include <fmt/format.h>

#include <cmath>
#include <set>
#include <tuple>
#include <vector>

#include "annotate/piece_table.h"
#include "base/describe.h"
#include "base/error.h"
#include "compare/compare.h"
#include "inspect/slice.h"
#include "merge/region.h"
#include "merge/values.h"
#include "text/array.h"

namespace ttrace {
namespace {

constexpr std::size_t kMostTensors = 16;

// The part of one side's tensor that is shown.
struct Shown {
  LogicalTensor region;
  Values values;
};

Shown part_of(const LogicalTensor& tensor, const Box& box) {
  Shown shown{region_of(tensor, box), {}};
  shown.values = values_of(shown.region);
  return shown;
}

std::string describe_values(const Values& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const TensorStatistics of = statistics_of(reinterpret_cast<const std::byte*>(values.data()), Dtype::kFloat64, count);
  std::string text;
  if (of.nan + of.inf < count) text = fmt::format("; norm {:.5g}, from {:.5g} to {:.5g}", of.norm, of.min, of.max);
  if (of.nan > 0) text += fmt::format("; {} NaN", of.nan);
  if (of.inf > 0) text += fmt::format("; {} Inf", of.inf);
  return text;
}

std::string side_text(const char* side, const LogicalTensor& whole, const Box& box, const Shown& shown) {
  const std::string part = box == whole_box(whole.shape) ? "" : fmt::format("{} of ", describe(box));
  return fmt::format("{}: {}{}, {}{}\n{}", side, part, to_string(whole.shape), name_of(whole.dtype),
                     describe_values(shown.values),
                     array_text(shown.values, shown.region.shape, !is_floating(whole.dtype)));
}

std::string difference_text(const Shown& candidate, const Shown& reference, const Box& box, bool whole_numbers) {
  Values difference(candidate.values.size());
  std::size_t worst = 0;
  for (std::size_t i = 0; i < difference.size(); ++i) {
    difference[i] = candidate.values[i] - reference.values[i];
    if (std::abs(difference[i]) > std::abs(difference[worst]) || std::isnan(difference[i])) worst = i;
  }
  std::string text = fmt::format("candidate - reference: relative error {:.3g}",
                                 relative_distance(candidate.values, reference.values));
  if (difference.empty()) return text + "\n";
  if (difference[worst] == 0) return text + ": equal\n";
  Shape index = index_at(static_cast<std::int64_t>(worst), box.size);
  for (std::size_t d = 0; d < index.size(); ++d) index[d] += box.start[d];
  text += fmt::format("; the largest is {:.5g} at {}: {:.9g}, reference {:.9g}\n", difference[worst], to_string(index),
                      candidate.values[worst], reference.values[worst]);
  return text + array_text(difference, box.size, whole_numbers);
}

const LogicalTensor* find_tensor(const AlignedTrace* side, const TensorId& id) {
  if (side == nullptr) return nullptr;
  const auto found = side->alignment.tensors.find(id);
  return found == side->alignment.tensors.end() ? nullptr : &found->second;
}

std::string show_tensor(const AlignedTrace& candidate, const AlignedTrace* reference, const LogicalTensor& chosen,
                        const std::string& slice) {
  std::string text = to_string(chosen.id) + "\n";
  const LogicalTensor tensor = held_rows_of(chosen);
  if (chosen.rows) text += fmt::format("the {} rows that were routed here, of {}\n", tensor.shape[0], chosen.shape[0]);
  const Box box = slice.empty() ? whole_box(tensor.shape) : parse_slice(slice, tensor.shape);
  const Shown shown = part_of(tensor, box);
  text += side_text("candidate", tensor, box, shown);
  const LogicalTensor* other = find_tensor(reference, chosen.id);
  if (reference != nullptr && other == nullptr) text += "reference: does not hold it\n";
  if (other != nullptr) {
    const LogicalTensor held = held_rows_of(*other);
    if (held.shape != tensor.shape || other->rows != chosen.rows) {
      text += fmt::format("reference: {}, {}: another shape\n", to_string(held.shape), name_of(held.dtype));
    } else {
      const Shown theirs = part_of(held, box);
      text += side_text("reference", held, box, theirs);
      text += difference_text(shown, theirs, box, !is_floating(tensor.dtype));
    }
  }
  if (!chosen.rows) text += "held by\n" + table_of_pieces(*candidate.trace, tensor, box);
  return text;
}

// Keeps the first iteration and micro-batch of each name, kind and pass, where the user named none.
void keep_first(std::vector<const LogicalTensor*>& chosen, const TensorChoice& choice) {
  std::set<std::tuple<std::string, Kind, Pass, std::int32_t, std::int32_t>> seen;
  std::erase_if(chosen, [&](const LogicalTensor* tensor) {
    const TensorId& id = tensor->id;
    const std::int32_t iteration = choice.iteration ? id.iteration : 0, batch = choice.microbatch ? id.microbatch : 0;
    return !seen.insert({id.name, id.kind, id.pass, iteration, batch}).second;
  });
}

}  // namespace

std::string show(const AlignedTrace& candidate, const AlignedTrace* reference, const ShowOptions& options) {
  std::vector<const LogicalTensor*> chosen = choose_tensors(candidate.alignment, options.choice);
  keep_first(chosen, options.choice);
  if (chosen.size() > kMostTensors) {
    throw InputError(fmt::format("'{}': {} tensors match; expected at most {}: a longer name, or --kind",
                                 options.choice.pattern, chosen.size(), kMostTensors));
  }
  std::string text;
  for (const LogicalTensor* tensor : chosen) {
    text += (text.empty() ? "" : "\n") + show_tensor(candidate, reference, *tensor, options.slice);
  }
  return text;
}

}  // namespace ttrace
