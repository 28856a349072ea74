#include "base/parallel_for.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

namespace ttrace {

int thread_count(int threads) { return threads > 0 ? threads : omp_get_max_threads(); }

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
