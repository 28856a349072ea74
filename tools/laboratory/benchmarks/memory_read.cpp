// The machine's plain memory-read bandwidth: threads sum a buffer that is far larger than the caches.
// Usage: memory_read THREADS; prints GB/s, the best of several passes.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kBytesAThread = std::size_t{512} << 20;
constexpr int kPasses = 5;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Large pages, where the system has them: page tables are not what is measured.
std::uint64_t* make_buffer() {
  void* memory = std::aligned_alloc(std::size_t{2} << 20, kBytesAThread);
  if (memory == nullptr) std::exit(2);
  ::madvise(memory, kBytesAThread, MADV_HUGEPAGE);
  auto* words = static_cast<std::uint64_t*>(memory);
  std::iota(words, words + kBytesAThread / sizeof(std::uint64_t), 0);
  return words;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  if (threads < 1) return 2;
  std::vector<std::uint64_t*> buffers;
  for (int i = 0; i < threads; ++i) buffers.push_back(make_buffer());
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double start = seconds_now();
    std::vector<std::thread> readers;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      readers.emplace_back([&, i] {
        sums[i] += std::accumulate(buffers[i], buffers[i] + kBytesAThread / sizeof(std::uint64_t), std::uint64_t{0});
      });
    }
    for (std::thread& reader : readers) reader.join();
    best = std::max(best, static_cast<double>(threads) * kBytesAThread / (seconds_now() - start) / 1e9);
  }
  // The sums are printed so that no compiler leaves the reading out.
  std::fprintf(stderr, "sum %llu\n", static_cast<unsigned long long>(sums[0]));
  std::printf("%.3f\n", best);
}
