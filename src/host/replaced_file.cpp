#include "host/replaced_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "base/error.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBuffer = std::size_t{1} << 20;
constexpr mode_t kMode = 0666;  // less the umask

// Returns what a file that must not be lost to a report is; empty for any other.
std::string_view precious(const fs::path& path) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kKinds = {{
      {std::string_view("\x89HDF\r\n\x1a\n", 8), "a file of a trace"},
      {"SQLite format 3", "a history"},
  }};
  if (path.extension() == ".journal") return "a file of a trace";
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return "";
  std::array<char, 16> bytes{};
  const ssize_t size = ::read(file, bytes.data(), bytes.size());
  ::close(file);
  const std::string_view begin(bytes.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  for (const auto& [magic, name] : kKinds) {
    if (begin.starts_with(magic)) return name;
  }
  return "";
}

// Returns where the file lies that the path leads to: to replace a link would leave the file as it was.
fs::path behind_links(const fs::path& path) {
  std::error_code error;
  fs::path place = path;
  for (int links = 0; links < 40 && fs::is_symlink(place, error); ++links) {
    const fs::path target = fs::read_symlink(place, error);
    if (error) break;
    place = place.parent_path() / target;
  }
  return place;
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

fs::path name_beside(const fs::path& path) {
  return folder_of(path) / fmt::format(".{}.{:08x}.partial", path.filename().string(), std::random_device()());
}

}  // namespace

ReplacedFile::ReplacedFile(fs::path path) : given_(std::move(path)), path_(behind_links(given_)) {
  struct stat status{};
  const bool is_there = ::stat(path_.c_str(), &status) == 0;
  if (is_there && S_ISDIR(status.st_mode)) fail(EISDIR);
  if (path_.empty() || !path_.has_filename()) fail(ENOENT);
  if (is_there && !S_ISREG(status.st_mode)) {
    is_beside_ = false;
    path_ = given_;  // a link of /dev/fd names nothing in a folder
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor_ < 0 && errno == ENXIO) {
      throw InputError(fmt::format("{}: a pipe that nobody reads; expected a file, or a reader", given_.string()));
    }
    if (descriptor_ < 0) fail(errno);
    ::fcntl(descriptor_, F_SETFL, ::fcntl(descriptor_, F_GETFL) & ~O_NONBLOCK);
    return;
  }
  if (const std::string_view what = precious(path_); is_there && !what.empty()) {
    throw InputError(fmt::format("{}: is {}; expected another place to write to", given_.string(), what));
  }
  if (is_there && ::access(path_.c_str(), W_OK) != 0) fail(errno);
  open_beside();
  if (is_there) ::fchmod(descriptor_, status.st_mode & 0777);
}

ReplacedFile::ReplacedFile(ReplacedFile&& other) noexcept
    : given_(std::move(other.given_)),
      path_(std::move(other.path_)),
      beside_(std::exchange(other.beside_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      is_beside_(other.is_beside_),
      buffer_(std::move(other.buffer_)) {}

ReplacedFile::~ReplacedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!beside_.empty()) ::unlink(beside_.c_str());
}

// A file without a name goes with its process. Where the file system has none, it has one from the beginning.
void ReplacedFile::open_beside() {
  descriptor_ = ::open(folder_of(path_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode);
  if (descriptor_ >= 0) return;
  const fs::path beside = name_beside(path_);
  descriptor_ = ::open(beside.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kMode);
  if (descriptor_ < 0) fail(errno);
  beside_ = beside;
}

void ReplacedFile::write(std::string_view bytes) {
  if (buffer_.size() + bytes.size() > kBuffer) flush();
  if (bytes.size() > kBuffer) return write_through(bytes);
  buffer_ += bytes;
}

void ReplacedFile::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void ReplacedFile::write_through(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

// Nothing puts a file that has no name in another's place: it gets one beside it first. A process that is killed at that
// moment leaves the whole file there, and nobody else can know whether its writer has gone.
void ReplacedFile::finish() {
  flush();
  if (is_beside_ && beside_.empty()) {
    const fs::path beside = name_beside(path_);
    const std::string own = fmt::format("/proc/self/fd/{}", descriptor_);
    if (::linkat(AT_FDCWD, own.c_str(), AT_FDCWD, beside.c_str(), AT_SYMLINK_FOLLOW) != 0) fail(errno);
    beside_ = beside;
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
  if (!is_beside_) return;
  if (::rename(beside_.c_str(), path_.c_str()) != 0) fail(errno);
  beside_.clear();
}

void ReplacedFile::fail(int error) const {
  throw InputError(fmt::format("{}: cannot be written ({}); expected a file", given_.string(), std::strerror(error)));
}

}  // namespace ttrace
