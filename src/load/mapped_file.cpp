#include "load/mapped_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "files/regular_file.h"

namespace ttrace {
namespace {

class MemoryMapping;

// The mappings there are. The lock is one that a signal handler may take.
class Mappings {
 public:
  void add(MemoryMapping* mapping) {
    const Lock lock(busy_);
    all_.insert(mapping);
  }
  void remove(MemoryMapping* mapping) {
    const Lock lock(busy_);
    all_.erase(mapping);
  }
  void require_unchanged();
  void explain_and_exit(const void* address);  // for a signal handler; returns where the address is in no mapping

 private:
  struct Lock {
    explicit Lock(std::atomic_flag& flag) : busy(flag) {
      while (busy.test_and_set(std::memory_order_acquire)) {
      }
    }
    ~Lock() { busy.clear(std::memory_order_release); }
    std::atomic_flag& busy;
  };
  std::atomic_flag busy_;
  std::set<MemoryMapping*> all_;
};

Mappings& mappings() {
  static Mappings* const all = new Mappings;  // outlives every mapping
  return *all;
}

std::atomic<bool> losses_are_explained = false;

// Half of the descriptors that a process may have are left to others.
bool may_stay_open(const RegularFile& file) {
  struct rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && static_cast<rlim_t>(file.descriptor()) < limit.rlim_cur / 2;
}

class MemoryMapping : public MappedFile {
 public:
  MemoryMapping(void* data, std::uint64_t size, std::string path, std::unique_ptr<const RegularFile> file)
      : data_(data), size_(size), path_(std::move(path)), status_(file->status()) {
    loss_ = fmt::format("{}ttrace: error: {}: {}\n", ::isatty(STDERR_FILENO) != 0 ? "\r\x1b[K" : "", printable(path_),
                        kLoss);
    if (may_stay_open(*file)) file_ = std::move(file);
    mappings().add(this);
  }
  ~MemoryMapping() override {
    mappings().remove(this);
    if (size_ > 0) ::munmap(data_, size_);
  }

  // A file that took the path since does not matter: the mapping is of the old one, which is asked where it is open. The
  // time of its last change counts as well: who writes to a file can set back the other, and not that one. It is
  // also that of a file that was removed, or replaced, which harms nothing.
  void require_unchanged() const {
    struct stat now{};
    if (file_ != nullptr) {
      if (::fstat(file_->descriptor(), &now) != 0) return;
    } else if (::stat(path_.c_str(), &now) != 0 || now.st_ino != status_.st_ino || now.st_dev != status_.st_dev) {
      return;
    }
    const auto is_equal = [](const timespec& a, const timespec& b) {
      return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
    };
    const bool is_written = !is_equal(now.st_mtim, status_.st_mtim) || now.st_size != status_.st_size;
    const bool is_touched = !is_equal(now.st_ctim, status_.st_ctim) && now.st_nlink > 0;
    if (!is_written && !is_touched) return;
    throw InputError(fmt::format("{}: changed while it was read; expected a file that nobody writes to", path_));
  }

  std::string version() const {
    return fmt::format("{} bytes of {}.{:09}", size_, status_.st_mtim.tv_sec, status_.st_mtim.tv_nsec);
  }

  bool holds(const void* address) const {
    const auto* at = static_cast<const std::byte*>(address);
    return std::less_equal<>()(data(), at) && std::less<>()(at, data() + size_);
  }
  const std::string& loss() const { return loss_; }

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

  bool read(const std::byte* begin, std::uint64_t bytes, std::byte* into) const override {
    if (!file_) return false;
    const auto offset = static_cast<std::uint64_t>(begin - data());
    if (file_->read_at(offset, into, bytes) != bytes) throw InputError(fmt::format("{}: {}", path_, kLoss));
    return true;
  }

  bool explains_losses() const override { return losses_are_explained; }

 private:
  static constexpr const char* kLoss = "a part of it is gone while it is read; expected a file that nobody shortens";

  void* data_;
  std::uint64_t size_;
  std::string path_;
  struct stat status_;
  std::unique_ptr<const RegularFile> file_;  // null: too many are open
  std::string loss_;                         // what to say where pages of it are gone
};

void Mappings::require_unchanged() {
  const Lock lock(busy_);
  for (const MemoryMapping* mapping : all_) mapping->require_unchanged();
}

void Mappings::explain_and_exit(const void* address) {
  const Lock lock(busy_);
  for (const MemoryMapping* mapping : all_) {
    if (!mapping->holds(address)) continue;
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, mapping->loss().data(), mapping->loss().size());
    ::_exit(2);
  }
}

std::unique_ptr<const RegularFile> open_to_map(const std::filesystem::path& path) {
  return std::make_unique<const RegularFile>(path, "a readable file", Links::kRefuse);
}

std::uint64_t whole_pages(std::uint64_t bytes) {
  static const std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

// Maps a file that is not empty, at `place` where it is not null: there the process has nothing that it needs.
std::shared_ptr<const MappedFile> map_at(void* place, std::unique_ptr<const RegularFile> file,
                                         const std::filesystem::path& path) {
  const auto size = static_cast<std::uint64_t>(file->status().st_size);
  const int how = MAP_SHARED | (place == nullptr ? 0 : MAP_FIXED);
  void* data = ::mmap(place, size, PROT_READ, how, file->descriptor(), 0);
  if (data == MAP_FAILED) {
    throw InputError(fmt::format("{}: {}; expected a readable file", path.string(), std::strerror(errno)));
  }
  return std::make_shared<MemoryMapping>(data, size, path.string(), std::move(file));
}

// Files that lie behind one another in memory: they fill a range that was set aside for them, to the last page.
class JoinedFiles : public MappedFile {
 public:
  JoinedFiles(const std::vector<std::filesystem::path>& paths, std::vector<std::unique_ptr<const RegularFile>> files,
              const std::vector<FileRange>& ranges, std::uint64_t size)
      : size_(size), path_(paths.front().parent_path().string()) {
    void* range = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {
      throw InputError(fmt::format("{}: {}; expected room for its files", path_, std::strerror(errno)));
    }
    data_ = static_cast<std::byte*>(range);
    for (std::size_t i = 0; i < files.size(); ++i) {
      starts_.push_back(ranges[i].begin);
      parts_.push_back(map_at(data_ + ranges[i].begin, std::move(files[i]), paths[i]));
    }
  }

  const std::byte* data() const override { return data_; }
  std::uint64_t size() const override { return size_; }
  std::string path() const override { return path_; }
  void release(const std::byte* begin, std::uint64_t bytes) const override { part_of(begin).release(begin, bytes); }
  bool read(const std::byte* begin, std::uint64_t bytes, std::byte* into) const override {
    return part_of(begin).read(begin, bytes, into);
  }
  bool explains_losses() const override { return parts_.front()->explains_losses(); }

 private:
  // Returns the file that has the bytes from `begin` on. A tensor lies in one.
  const MappedFile& part_of(const std::byte* begin) const {
    const auto offset = static_cast<std::uint64_t>(begin - data_);
    const auto behind = std::upper_bound(starts_.begin(), starts_.end(), offset);
    return *parts_[static_cast<std::size_t>(behind - starts_.begin()) - 1];
  }

  std::vector<std::uint64_t> starts_;
  std::uint64_t size_;
  std::string path_;
  std::byte* data_ = nullptr;
  std::vector<std::shared_ptr<const MappedFile>> parts_;  // they let go of the range, each of its own pages
};

// The kernel says so in whichever thread reads the page. None can go on: there are no bytes to go on with.
void on_lost_page(int, siginfo_t* info, void*) {
  mappings().explain_and_exit(info->si_addr);
  ::signal(SIGBUS, SIG_DFL);  // another kind of fault, which comes again at once
}

}  // namespace

std::shared_ptr<const MappedFile> map_file(const std::filesystem::path& path) {
  auto file = open_to_map(path);
  const auto size = static_cast<std::uint64_t>(file->status().st_size);
  if (size == 0) return std::make_shared<MemoryMapping>(nullptr, 0, path.string(), std::move(file));
  return map_at(nullptr, std::move(file), path);
}

std::shared_ptr<const MappedFile> map_files(const std::vector<std::filesystem::path>& paths,
                                            std::vector<FileRange>& ranges) {
  if (paths.size() == 1) {
    auto file = map_file(paths.front());
    ranges = {{0, file->size()}};
    return file;
  }
  std::vector<std::unique_ptr<const RegularFile>> files;
  std::uint64_t size = 0;
  for (const std::filesystem::path& path : paths) {
    files.push_back(open_to_map(path));
    const auto bytes = static_cast<std::uint64_t>(files.back()->status().st_size);
    if (bytes == 0) throw InputError(fmt::format("{}: is empty; expected a file with tensors", path.string()));
    ranges.push_back({size, bytes});
    size += whole_pages(bytes);
  }
  return std::make_shared<JoinedFiles>(paths, std::move(files), ranges, size);
}

std::string version_of(const MappedFile& file) {
  const auto* mapping = dynamic_cast<const MemoryMapping*>(&file);
  return mapping == nullptr ? "" : mapping->version();
}

void require_version(const MappedFile& file, std::string_view version) {
  if (version_of(file) == version) return;
  throw InputError(
      fmt::format("{}: has {} seconds where one process looks, and {} where another does; expected one file "
                  "that all see",
                  file.path(), version_of(file), version));
}

void require_unchanged_files() { mappings().require_unchanged(); }

void explain_lost_pages() {
  struct sigaction action{};
  action.sa_sigaction = on_lost_page;
  action.sa_flags = SA_SIGINFO;
  losses_are_explained = ::sigaction(SIGBUS, &action, nullptr) == 0;
}

}  // namespace ttrace
