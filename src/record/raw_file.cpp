#include "record/raw_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "record/trace_writer.h"

namespace ttrace {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw RecordError(full ? RecordStatus::kFull : RecordStatus::kIo,
                    fmt::format("{}: {}: {}", path.string(), what, std::strerror(error)));
}

// True where a write would reach beyond the limit on file sizes: the kernel would send SIGXFSZ, which ends the program.
bool is_beyond_limit(std::uint64_t end) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && end > limit.rlim_cur;
}

}  // namespace

RawFile::RawFile(const std::filesystem::path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ >= 0) return;
  if (errno != EEXIST) fail(path, "can't be created", errno);
  throw RecordError(
      RecordStatus::kExists,
      fmt::format("{}: exists; expected a directory without a trace, and one process per rank", path.string()));
}

RawFile::~RawFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RawFile::write_at(std::uint64_t offset, std::string_view bytes) {
  if (is_beyond_limit(offset + bytes.size())) fail(path_, "can't be written", EFBIG);
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(path_, "can't be written", written < 0 ? errno : EIO);
    bytes.remove_prefix(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

bool RawFile::read_at(std::uint64_t offset, char* to, std::size_t bytes) const noexcept {
  while (bytes > 0) {
    const ssize_t done = ::pread(descriptor_, to, bytes, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    to += done;
    offset += static_cast<std::uint64_t>(done);
    bytes -= static_cast<std::size_t>(done);
  }
  return true;
}

void RawFile::truncate(std::uint64_t size) noexcept {
  // Bytes that remain beyond the end after a failure are not in the journal: they do no harm.
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) return;
}

void RawFile::close() {
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0 && errno != EINTR) fail(path_, "can't be written", errno);
}

}  // namespace ttrace
