#include "compare/tile_bytes.h"

#include <algorithm>
#include <functional>
#include <stdexcept>

namespace ttrace {
namespace {

constexpr std::size_t kLine = 64;  // bytes of a line of the cache: copies lie in lines as what they are copied from
// Needs that lie farther apart are read in place.
constexpr std::int64_t kMostReadPerByte = 2;

// Holds what one term reads.
struct Need {
  StridedTerm* term;
  const std::byte* end;
  std::int64_t bytes;
};

// Several needs of one tensor that leave no gap.
struct Stretch {
  std::span<const Need> needs;
  const std::byte* end;
  std::int64_t bytes;  // that the needs read, some perhaps twice

  const StridedTerm& first() const { return *needs.front().term; }
  std::size_t size() const { return static_cast<std::size_t>(end - first().data); }
  bool is_worth_a_copy() const { return end - first().data <= kMostReadPerByte * bytes; }
};

void add_needs(std::vector<StridedTerm>& terms, const Box& logical, std::vector<Need>& needs) {
  for (StridedTerm& term : terms) {
    if (term.file == nullptr) continue;
    std::int64_t span = 1;
    for (std::size_t i = 0; i < term.strides.size(); ++i) span += (logical.size[i] - 1) * term.strides[i];
    needs.push_back({&term, term.data + span * size_of(term.dtype), element_count(logical.size) * size_of(term.dtype)});
  }
}

std::vector<Need> needs_of(std::span<OverlayBox*> boxes) {
  std::vector<Need> needs;
  for (OverlayBox* box : boxes) {
    add_needs(box->reference, box->logical, needs);
    add_needs(box->candidate, box->logical, needs);
  }
  std::sort(needs.begin(), needs.end(), [](const Need& a, const Need& b) {
    if (a.term->entry != b.term->entry) return std::less<>()(a.term->entry, b.term->entry);
    return std::less<>()(a.term->data, b.term->data);
  });
  return needs;
}

std::vector<Stretch> stretches_of(std::span<const Need> needs) {
  std::vector<Stretch> stretches;
  for (std::size_t i = 0; i < needs.size(); ++i) {
    const Need& need = needs[i];
    const bool joins = !stretches.empty() && stretches.back().first().entry == need.term->entry &&
                       need.term->data <= stretches.back().end;
    if (!joins) {
      stretches.push_back({needs.subspan(i, 1), need.end, need.bytes});
      continue;
    }
    Stretch& last = stretches.back();
    last.needs = {last.needs.data(), last.needs.size() + 1};
    last.end = std::max(last.end, need.end);
    last.bytes += need.bytes;
  }
  return stretches;
}

std::size_t place_in_line(const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data) % kLine; }

}  // namespace

std::byte* TileBuffer::take(std::size_t bytes) {
  if (bytes + kLine > capacity_) {
    capacity_ = bytes + kLine;
    bytes_ = std::make_unique_for_overwrite<std::byte[]>(capacity_);
  }
  return bytes_.get() + (kLine - place_in_line(bytes_.get())) % kLine;
}

TileBuffer& TileBuffers::next() {
  for (const auto& buffer : buffers_) {
    if (!buffer->is_held()) return *buffer;
  }
  if (buffers_.size() == kMost) throw std::logic_error("all buffers of tiles are held");
  return *buffers_.emplace_back(std::make_unique<TileBuffer>());
}

bool TileBuffers::may_hold(const TileBuffer& used) const {
  return buffers_.size() < kMost ||
         std::any_of(
             buffers_.begin(), buffers_.end(),
             [&](const auto& buffer) { return buffer.get() != &used && !buffer->is_held(); });
}

std::vector<ReadRange> fetch(std::span<OverlayBox*> boxes, TileBuffer& buffer, ReadInPlace in_place) {
  const std::vector<Need> needs = needs_of(boxes);
  const std::vector<Stretch> stretches = stretches_of(needs);
  const auto is_copied = [in_place](const Stretch& stretch) {
    const bool is_left = in_place == ReadInPlace::kYes && stretch.first().file->explains_losses();
    return !is_left && stretch.is_worth_a_copy();
  };
  std::size_t room = 0;
  for (const Stretch& stretch : stretches) room += is_copied(stretch) ? stretch.size() + 2 * kLine : 0;
  std::byte* free = room > 0 ? buffer.take(room) : nullptr;
  std::vector<ReadRange> ranges;
  for (const Stretch& stretch : stretches) {
    const std::byte* begin = stretch.first().data;
    const std::size_t size = stretch.size();
    ReadRange range{stretch.first().file, stretch.first().entry, begin, stretch.end, begin, nullptr};
    std::byte* copy = free + place_in_line(begin);
    if (is_copied(stretch) && range.file->read(begin, size, copy)) {
      range.bytes = copy;
      range.buffer = &buffer;
      for (const Need& need : stretch.needs) need.term->data = copy + (need.term->data - begin);
      free += (place_in_line(begin) + size + kLine - 1) / kLine * kLine;
    }
    ranges.push_back(range);
  }
  return ranges;
}

}  // namespace ttrace
