#include "compare/pages.h"

#include <algorithm>
#include <cstddef>
#include <functional>

namespace ttrace {
namespace {

// Each call interrupts all cores that the other threads run on: of 8 MiB at once, these took a tenth of the time.
constexpr std::int64_t kReleasedAtOnce = 32 << 20;  // bytes
// Ranges that are no farther apart are released in one call with the pages between them: a page fault maps neighbouring
// pages too.
constexpr std::ptrdiff_t kGapBytes = 64 << 10;
// A page fault in a large page of the cache maps what lies around it, too: what was released already, and what will not
// be read in place after all.
constexpr std::ptrdiff_t kMappedAround = 1 << 20;

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
    const std::byte* data = range->file->data();
    const std::byte* begin = range->begin - std::min(range->begin - data, kMappedAround);
    end += std::min(data + range->file->size() - end, kMappedAround);
    range->file->release(begin, static_cast<std::uint64_t>(end - begin));
    range = next;
  }
  ranges_.clear();
  bytes_ = 0;
}

}  // namespace ttrace
