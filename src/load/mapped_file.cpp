#include "load/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ttrace/error.h"

namespace ttrace {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what) {
  throw InputError(fmt::format("{}: {}; expected a readable file", path.string(), what));
}

class MemoryMapping : public MappedFile {
 public:
  MemoryMapping(void* data, std::uint64_t size, std::string path) : data_(data), size_(size), path_(std::move(path)) {}
  ~MemoryMapping() override {
    if (size_ > 0) ::munmap(data_, size_);
  }
  const std::byte* data() const override { return static_cast<const std::byte*>(data_); }
  std::uint64_t size() const override { return size_; }
  std::string path() const override { return path_; }

  // Releases whole pages, those at the ends too: where a neighbouring tensor shares one, its next access loads the page
  // again. A refusal of the kernel does no harm: the pages stay.
  void release(const std::byte* begin, std::uint64_t bytes) const override {
    static const std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const auto offset = static_cast<std::uint64_t>(begin - data());
    const std::uint64_t first = offset / page * page, end = std::min((offset + bytes + page - 1) / page * page, size_);
    ::madvise(static_cast<char*>(data_) + first, end - first, MADV_DONTNEED);
  }

 private:
  void* data_;
  std::uint64_t size_;
  std::string path_;
};

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

}  // namespace

std::shared_ptr<const MappedFile> map_file(const std::filesystem::path& path) {
  // O_NONBLOCK keeps the call from waiting for a writer where the path is a pipe.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat status{};
  if (file.value < 0 || ::fstat(file.value, &status) != 0) fail(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(path, "not a regular file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size == 0) return std::make_shared<MemoryMapping>(nullptr, 0, path.string());
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.value, 0);
  if (data == MAP_FAILED) fail(path, std::strerror(errno));
  return std::make_shared<MemoryMapping>(data, size, path.string());
}

}  // namespace ttrace
