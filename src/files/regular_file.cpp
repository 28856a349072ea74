#include "files/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace ttrace {

RegularFile::RegularFile(const std::filesystem::path& path, const std::string& expected, Links links)
    : path_(path.string()),
      expected_(expected),
      // O_NONBLOCK keeps the call from waiting for a writer where the path is a pipe.
      descriptor_(::open(path.c_str(),
                         O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (links == Links::kRefuse ? O_NOFOLLOW : 0))) {
  if (descriptor_ < 0) fail(links == Links::kRefuse && errno == ELOOP ? "a symbolic link" : std::strerror(errno));
  if (::fstat(descriptor_, &status_) == 0 && S_ISREG(status_.st_mode)) return;
  ::close(descriptor_);
  fail("not a regular file");
}

RegularFile::~RegularFile() { ::close(descriptor_); }

std::size_t RegularFile::read(char* bytes, std::size_t size) const {
  ssize_t count = 0;
  do {
    count = ::read(descriptor_, bytes, size);
  } while (count < 0 && errno == EINTR);
  if (count < 0) fail(std::strerror(errno));
  return static_cast<std::size_t>(count);
}

std::size_t RegularFile::read_at(std::uint64_t offset, std::byte* bytes, std::size_t size) const {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = ::pread(descriptor_, bytes + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(std::strerror(errno));
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

void RegularFile::fail(const std::string& what) const {
  throw InputError(fmt::format("{}: {}; expected {}", path_, what, expected_));
}

std::string read_text_file(const std::filesystem::path& path, const std::string& expected) {
  const RegularFile file(path, expected);
  std::string text;
  // A byte more than it has, to see its end; it may have grown since.
  std::size_t room = std::min(static_cast<std::size_t>(file.status().st_size), kMostTextBytes) + 1;
  for (std::size_t size = 0, count = 1; count > 0; room = std::max<std::size_t>(size, 1 << 16)) {
    text.resize(size + room);
    count = file.read(text.data() + size, room);
    text.resize(size += count);
    if (size > kMostTextBytes)
      throw InputError(fmt::format("{}: more than 1 GiB; expected {}", path.string(), expected));
  }
  return text;
}

}  // namespace ttrace
