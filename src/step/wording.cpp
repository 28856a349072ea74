#include "step/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/describe.h"

namespace ttrace {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 27;  // of a tensor whose elements are marked one by one

// Marks the elements of the logical tensor that are wrong in some rank's part.
struct Marks {
  std::vector<std::uint8_t> wrong;
  std::int64_t count = 0;
  Shape low, high;  // the smallest box that holds them, [low, high)

  explicit Marks(const Shape& shape)
      : wrong(static_cast<std::size_t>(element_count(shape))), low(shape), high(shape.size(), 0) {}

  // Tells whether they fill that box.
  bool is_box() const {
    std::int64_t elements = 1;
    for (std::size_t d = 0; d < low.size(); ++d) elements *= high[d] - low[d];
    return elements == count;
  }

  void add(const Shape& index, std::size_t position) {
    if (wrong[position] != 0) return;
    wrong[position] = 1;
    ++count;
    for (std::size_t d = 0; d < index.size(); ++d) {
      low[d] = std::min(low[d], index[d]);
      high[d] = std::max(high[d], index[d] + 1);
    }
  }
};

// Visits the elements of a piece: index in the logical tensor, row-major position there, and position in the entry.
template <class Visit>
void for_each_element(const Piece& piece, const Shape& strides, Visit visit) {
  if (is_empty(piece.logical)) return;
  Shape index = piece.logical.start;
  while (true) {
    std::int64_t position = 0, local = piece.offset;
    for (std::size_t d = 0; d < index.size(); ++d) {
      position += index[d] * strides[d];
      local += (index[d] - piece.logical.start[d]) * piece.strides[d];
    }
    visit(index, static_cast<std::size_t>(position), static_cast<std::size_t>(local));
    std::size_t d = index.size();
    while (d > 0 && ++index[d - 1] == piece.logical.start[d - 1] + piece.logical.size[d - 1]) {
      index[d - 1] = piece.logical.start[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

std::string describe_box(const Box& box, const Shape& shape) {
  const bool whole_rows = !shape.empty() && std::equal(box.size.begin() + 1, box.size.end(), shape.begin() + 1);
  if (!whole_rows) return describe(box);
  const std::string_view unit = shape.size() == 1 ? "element" : "row";
  if (box.size[0] == 1) return fmt::format("{} {}", unit, box.start[0]);
  return fmt::format("{}s {}-{}", unit, box.start[0], box.start[0] + box.size[0] - 1);
}

// Says which elements are wrong: `rows 128-255`, `every element`, `3 of 64 elements, in rows 0-9`.
std::string describe_marks(const Marks& marks, const Shape& shape) {
  const std::int64_t elements = element_count(shape);
  if (marks.count == elements) return elements == 1 ? "the element" : "every element";
  if (marks.count == 0) return "elements of padding";
  Box box{marks.low, marks.high};
  for (std::size_t d = 0; d < shape.size(); ++d) box.size[d] -= box.start[d];
  std::string where = describe_box(box, shape);
  if (element_count(box.size) == marks.count) return where;
  const std::string inside = box.size == shape ? "" : fmt::format(", in {}", where);
  return fmt::format("{} of {} elements{}", marks.count, elements, inside);
}

std::string describe_holders(std::span<const WrongPart> parts) {
  std::vector<std::int32_t> ranks;
  for (const WrongPart& part : parts) ranks.push_back(part.series->rank->rank);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  const Coordinates& coordinates = parts.front().series->rank->coordinates;
  if (ranks.size() != 1 || coordinates.empty()) return fmt::format("on {}", describe_ranks(ranks));
  std::vector<std::string> words;
  for (const auto& [axis, coordinate] : coordinates) words.push_back(fmt::format("{}={}", axis, coordinate));
  return fmt::format("on {} ({})", describe_ranks(ranks), fmt::join(words, ", "));
}

// Marks what is wrong in each part; the details of the first part go to `first`.
Marks mark(const LogicalTensor& tensor, std::span<const WrongPart> parts, bool copies, UpdateDetail& first) {
  Marks marks(tensor.shape);
  const std::vector<Piece> pieces = tensor.pieces();
  const Shape strides = row_major_strides(tensor.shape);
  for (const WrongPart& part : parts) {
    UpdateDetail detail;
    replay(*part.series, 0, part.series->elements, part.update, &detail);
    const std::vector<std::uint8_t>& wrong = copies ? detail.wrong_copy : detail.wrong;
    const Entry* entry = part.series->updates[part.update].delta.entry;
    for (const Piece& piece : pieces) {
      if (piece.entry != entry) continue;
      for_each_element(piece, strides, [&](const Shape& index, std::size_t position, std::size_t local) {
        if (wrong[local] != 0) marks.add(index, position);
      });
    }
    if (&part == &parts.front()) first = std::move(detail);
  }
  return marks;
}

UpdateTally total_of(std::span<const WrongPart> parts) {
  UpdateTally total;
  for (const WrongPart& part : parts) total.add(*part.tally);
  return total;
}

// Says what the wrong elements are instead; empty where nothing known explains them.
std::string describe_fit(const StepFit& fit, const UpdateRule& rule) {
  if (!fit.explains || rule.lr == 0) return "";
  const double factor = fit.lr / rule.lr;
  const double decay = fit.lr != 0 ? fit.decay / fit.lr : 0, known = rule.decoupled ? rule.weight_decay : 0;
  // The fit is good to a few units of 1e-5: src/step/replay.h.
  const bool lr_is_right = std::abs(factor - 1) < 2e-5;
  const bool decay_is_right = std::abs(decay - known) <= std::max(2e-3 * std::abs(known), 1e-4);
  if (!lr_is_right && decay_is_right) {
    const bool is_slight = std::abs(factor - 1) < 1e-3;
    return fmt::format("{:.{}g} times what lr {:g} gives", factor, is_slight ? 6 : 4, rule.lr);
  }
  if (lr_is_right && !decay_is_right) {
    return fmt::format("what decoupled weight decay {:.3g} gives; its option is {:g}", decay, known);
  }
  return "";
}

}  // namespace

std::string describe_wrong_update(const LogicalTensor& tensor, std::span<const WrongPart> parts, bool look_closely) {
  const UpdateTally total = total_of(parts);
  const RankUpdate& update = parts.front().series->updates[parts.front().update];
  const std::string holders = describe_holders(parts);
  const std::string size = fmt::format("{:.2g} times what rounding explains, at worst {:.6g}, expected {:.6g}",
                                       total.worst.ratio, total.worst.recorded, total.worst.expected);
  std::string which = fmt::format("{} elements", total.wrong), instead;
  if (look_closely && element_count(tensor.shape) <= kMostElements) {
    UpdateDetail first;
    const Marks marks = mark(tensor, parts, false, first);
    which = describe_marks(marks, tensor.shape);
    instead = describe_fit(first.fit, update.rule);
    // Elements that hardly move do not show it, here and there.
    const bool is_slice = marks.is_box() && marks.count < element_count(tensor.shape);
    if (!instead.empty())
      instead = (is_slice ? which + (marks.count == 1 ? " is " : " are ") : "the update is ") + instead;
  }
  if (update.step->changed_after) {
    if (total.wrong_and_zero == total.wrong) {
      return fmt::format("{} what it was before the step, which was undone or never made, {}", which, holders);
    }
    return fmt::format("{} changed after the step, or not what its gradient, options and state give, {}: {}", which,
                       holders, size);
  }
  if (update.skipped) return fmt::format("{} changed, {}, though the optimizer did not step: {}", which, holders, size);
  if (total.wrong_and_zero == total.wrong) return fmt::format("{} not updated, {}", which, holders);
  if (!instead.empty()) return fmt::format("{}, {}", instead, holders);
  return fmt::format("{} not what its gradient, options and state give, {}: {}", which, holders, size);
}

std::string describe_wrong_copy(const LogicalTensor& tensor, std::span<const WrongPart> parts, bool look_closely) {
  const UpdateTally total = total_of(parts);
  std::string which = fmt::format("{} elements", total.wrong_copies);
  if (look_closely && element_count(tensor.shape) <= kMostElements) {
    UpdateDetail first;
    which = describe_marks(mark(tensor, parts, true, first), tensor.shape);
  }
  const std::string holders = describe_holders(parts);
  const WorstUpdate& worst = total.worst_copy;
  if (total.stale_copies == total.wrong_copies) {
    return fmt::format("{} not brought up to date after the step, {}: at worst {:.6g}, expected {:.6g}", which, holders,
                       worst.recorded, worst.expected);
  }
  return fmt::format(
      "{} not what the step made, rounded, {}: {:.2g} ulp away at worst, {:.6g} where {:.6g} is expected", which,
      holders, worst.ratio, worst.recorded, worst.expected);
}

}  // namespace ttrace
