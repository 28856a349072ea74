// Measures how fast files are read that lie in the page cache: threads sum their words, of a mapping made for each
// pass, or of blocks that `pread` copies to a buffer which stays in the cache. No program that looks at every byte can
// be faster.
// Usage: file_read mapped|pread THREADS FILE...; prints GB/s, the best of several passes.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kBlockBytes = std::size_t{256} << 10;
constexpr std::size_t kTakenAtOnce = 16;  // blocks that lie one after the other
constexpr int kPasses = 3;

struct File {
  int descriptor;
  std::size_t size;
  const std::byte* data;  // null: it is not mapped
};

struct Block {
  const File* file;
  std::size_t offset, size;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(2);
}

void map(File& file) {
  void* data = ::mmap(nullptr, file.size, PROT_READ, MAP_SHARED, file.descriptor, 0);
  if (data == MAP_FAILED) fail("mmap");
  file.data = static_cast<const std::byte*>(data);
}

std::uint64_t sum_of(const void* data, std::size_t bytes) {
  const auto* words = static_cast<const std::uint64_t*>(data);
  return std::accumulate(words, words + bytes / sizeof *words, std::uint64_t{0});
}

std::uint64_t sum_of(const Block& block, std::vector<std::uint64_t>& buffer) {
  if (block.file->data != nullptr) return sum_of(block.file->data + block.offset, block.size);
  const ssize_t done = ::pread(block.file->descriptor, buffer.data(), block.size, static_cast<off_t>(block.offset));
  if (done != static_cast<ssize_t>(block.size)) fail("pread");
  return sum_of(buffer.data(), block.size);
}

std::uint64_t read_all(const std::vector<Block>& blocks, int threads) {
  std::atomic<std::size_t> next = 0;
  std::atomic<std::uint64_t> total = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < threads; ++i) {
    readers.emplace_back([&] {
      std::vector<std::uint64_t> buffer(kBlockBytes / sizeof(std::uint64_t));
      std::uint64_t sum = 0;
      for (std::size_t at = 0; (at = next.fetch_add(kTakenAtOnce)) < blocks.size();) {
        const std::size_t end = std::min(at + kTakenAtOnce, blocks.size());
        for (; at < end; ++at) sum += sum_of(blocks[at], buffer);
      }
      total += sum;
    });
  }
  for (std::thread& reader : readers) reader.join();
  return total;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view way = argc > 3 ? argv[1] : "";
  const int threads = argc > 3 ? std::atoi(argv[2]) : 0;
  if (threads < 1 || (way != "mapped" && way != "pread")) return 2;
  std::vector<File> files;
  std::size_t bytes = 0;
  for (int i = 3; i < argc; ++i) {
    const int descriptor = ::open(argv[i], O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) fail(argv[i]);
    const auto size = static_cast<std::size_t>(::lseek(descriptor, 0, SEEK_END));
    if (size > 0) files.push_back({descriptor, size, nullptr});
    bytes += size;
  }
  std::vector<Block> blocks;
  for (const File& file : files) {
    for (std::size_t offset = 0; offset < file.size; offset += kBlockBytes) {
      blocks.push_back({&file, offset, std::min(kBlockBytes, file.size - offset)});
    }
  }
  double best = 0;
  std::uint64_t sum = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double start = seconds_now();
    if (way == "mapped") std::for_each(files.begin(), files.end(), map);
    sum += read_all(blocks, threads);
    for (const File& file : files) {
      if (file.data != nullptr) ::munmap(const_cast<std::byte*>(file.data), file.size);
    }
    best = std::max(best, static_cast<double>(bytes) / (seconds_now() - start) / 1e9);
  }
  // The sum is printed so that no compiler leaves the reading out.
  std::fprintf(stderr, "sum %llu\n", static_cast<unsigned long long>(sum));
  std::printf("%.3f\n", best);
}
