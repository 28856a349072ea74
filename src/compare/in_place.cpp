#include "compare/in_place.h"

#include <sys/resource.h>

namespace ttrace {
namespace {

constexpr std::int64_t kJudgedBytes = 8 << 20;
constexpr std::int64_t kCopiedBytes = 256 << 20;
// Between the 64 KiB that a fault maps of single pages and the 150 KiB and more that were measured of large ones.
constexpr std::int64_t kBytesPerFault = 96 << 10;

// Of the calling thread.
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
