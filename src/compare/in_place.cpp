#include "compare/in_place.h"

#include <sys/resource.h>

namespace ttrace {
namespace {

constexpr std::int64_t kJudgedBytes = 8 << 20;
constexpr std::int64_t kCopiedBytes = 256 << 20;
// A fault maps 64 KiB of single pages at most: 55 to 62 KiB were measured of files that are all single pages, 78 and more
// of those with large ones.
constexpr std::int64_t kBytesPerFault = 72 << 10;

// Returns the page faults of the calling thread.
std::int64_t page_faults() {
  struct rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

}  // namespace

ReadInPlace InPlaceChoice::next() {
  if (bytes_to_copy_ > 0) return ReadInPlace::kNo;
  faults_before_ = page_faults();
  return ReadInPlace::kYes;
}

void InPlaceChoice::add(std::span<const ReadRange> read) {
  std::int64_t bytes = 0, mapped = 0;
  for (const ReadRange& range : read) (range.is_mapped() ? mapped : bytes) += range.end - range.begin;
  if (bytes_to_copy_ > 0) {
    bytes_to_copy_ -= bytes;
    return;
  }
  mapped_bytes_ += mapped;
  faults_ += page_faults() - faults_before_;
  if (mapped_bytes_ < kJudgedBytes) return;
  if (faults_ * kBytesPerFault > mapped_bytes_) bytes_to_copy_ = kCopiedBytes;
  faults_ = mapped_bytes_ = 0;
}

}  // namespace ttrace
