#include "base/parallel_for.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

namespace ttrace {

namespace {

// Returns how many of so many threads a process may have, this one among them. OpenMP's library ends the program where
// one cannot be made; so that many are made here before, once.
int count_possible(int wanted) {
  static std::mutex busy;
  static int made = 1;
  static bool is_most = false;
  const std::lock_guard lock(busy);
  if (is_most || wanted <= made) return std::min(wanted, made);
  std::promise<void> all;
  const std::shared_future<void> end = all.get_future().share();
  std::vector<std::thread> threads;
  try {
    while (static_cast<int>(threads.size()) + 1 < wanted) threads.emplace_back([end] { end.wait(); });
  } catch (const std::exception&) {  // a limit of processes, or of address space
    is_most = true;
  }
  made = static_cast<int>(threads.size()) + 1;
  all.set_value();
  for (std::thread& thread : threads) thread.join();
  return made;
}

}  // namespace

int thread_count(int threads) { return count_possible(threads > 0 ? threads : omp_get_max_threads()); }

std::size_t thread_number() { return static_cast<std::size_t>(omp_get_thread_num()); }

void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> first = count;  // that threw
  std::exception_ptr thrown;               // by it
  std::mutex busy;                         // of both, for those who write
#pragma omp parallel for schedule(dynamic) num_threads(thread_count(threads)) if (count > 1)
  for (std::size_t i = 0; i < count; ++i) {
    if (i > first) continue;
    try {
      body(i);
    } catch (...) {
      const std::lock_guard lock(busy);
      if (i > first) continue;
      first = i;
      thrown = std::current_exception();
    }
  }
  if (thrown) std::rethrow_exception(thrown);
}

void parallel_for_ranges(std::size_t count, std::size_t most, int threads,
                         const std::function<void(std::size_t, std::size_t)>& body) {
  parallel_for((count + most - 1) / most, threads,
               [&](std::size_t i) { body(i * most, std::min((i + 1) * most, count)); });
}

}  // namespace ttrace
