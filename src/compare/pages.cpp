#include "compare/pages.h"

#include <algorithm>
#include <cstddef>
#include <functional>

namespace ttrace {
namespace {

constexpr std::int64_t kReleasedAtOnce = 8 << 20;  // bytes
// Ranges that are no farther apart are released in one call with the pages between them: a page fault maps neighbouring
// pages too.
constexpr std::ptrdiff_t kGapBytes = 64 << 10;

}  // namespace

void ReadPages::add(const std::vector<ReadRange>& ranges) {
  for (const ReadRange& range : ranges) {
    if (!range.is_mapped()) continue;
    ranges_.push_back(range);
    bytes_ += std::max<std::int64_t>(range.end - range.begin, 4096);
  }
  if (bytes_ >= kReleasedAtOnce) release();
}

void ReadPages::release() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const ReadRange& a, const ReadRange& b) { return std::less<>()(a.begin, b.begin); });
  for (auto range = ranges_.begin(); range != ranges_.end();) {
    const std::byte* end = range->end;
    auto next = range + 1;
    for (; next != ranges_.end() && next->file == range->file && next->begin - end <= kGapBytes; ++next) {
      end = std::max(end, next->end);
    }
    range->file->release(range->begin, static_cast<std::uint64_t>(end - range->begin));
    range = next;
  }
  ranges_.clear();
  bytes_ = 0;
}

}  // namespace ttrace
