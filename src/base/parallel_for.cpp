#include "base/parallel_for.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

thread_local std::size_t number_in_loop = 0;
thread_local bool in_loop = false;  // of a loop: those in it run on its threads

class Loop {
 public:
  Loop(std::size_t count, const std::function<void(std::size_t)>& body) : body_(body), count_(count), first_(count) {}

  // Does what is left, as the thread of this number.
  void work(std::size_t number) {
    const std::size_t outer_number = std::exchange(number_in_loop, number);
    const bool outer = std::exchange(in_loop, true);
    for (std::size_t i = 0; (i = next_++) < count_;) call(i);
    number_in_loop = outer_number;
    in_loop = outer;
  }

  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  void call(std::size_t i) {
    if (i > first_) return;
    try {
      body_(i);
    } catch (...) {
      const std::lock_guard lock(busy_);
      if (i > first_) return;
      first_ = i;
      thrown_ = std::current_exception();
    }
  }

  const std::function<void(std::size_t)>& body_;
  std::size_t count_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<std::size_t> first_;  // that threw
  std::exception_ptr thrown_;       // by it
  std::mutex busy_;                 // of both, for those who write
};

// Threads that wait for the next loop of the thread that has made them, because a loop may take less time than to make
// threads does.
class Pool {
 public:
  Pool() = default;
  ~Pool() {
    begin(nullptr);
    for (std::thread& thread : threads_) thread.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Does the loop on `most` threads, this one among them, or on as many as can be made.
  void run(Loop& loop, std::size_t most) {
    while (threads_.size() + 1 < most && add_thread()) {
    }
    wanted_ = most;
    begin(&loop);
    loop.work(0);
    for (int left = left_; left > 0; left = left_) left_.wait(left);
  }

  // A child that was forked has none of its threads.
  bool is_of_this_process() const { return process_ == ::getpid(); }

 private:
  bool add_thread() {
    try {
      threads_.emplace_back(&Pool::serve, this, threads_.size() + 1, static_cast<int>(round_));
      return true;
    } catch (const std::system_error&) {  // a limit of processes, or of address space
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  void begin(Loop* loop) {
    loop_ = loop;
    left_ = static_cast<int>(threads_.size());
    ++round_;
    round_.notify_all();
  }

  void serve(std::size_t number, int seen) {
    for (;;) {
      round_.wait(seen);
      seen = round_;
      if (loop_ == nullptr) return;
      if (number < wanted_) loop_->work(number);
      if (--left_ == 0) left_.notify_one();
    }
  }

  std::vector<std::thread> threads_;
  pid_t process_ = ::getpid();
  Loop* loop_ = nullptr;
  std::size_t wanted_ = 0;
  std::atomic<int> round_ = 0;
  std::atomic<int> left_ = 0;  // threads that are not done with this round
};

Pool& own_pool() {
  thread_local std::unique_ptr<Pool> pool;
  if (pool && !pool->is_of_this_process())
    static_cast<void>(pool.release());  // to join its threads would take for ever
  if (!pool) pool = std::make_unique<Pool>();
  return *pool;
}

}  // namespace

int thread_count(int threads) { return threads > 0 ? threads : omp_get_max_threads(); }

std::size_t thread_number() { return number_in_loop; }

void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& body) {
  const std::size_t most = in_loop ? 1 : std::min(count, static_cast<std::size_t>(thread_count(threads)));
  Loop loop(count, body);
  if (most > 1) {
    own_pool().run(loop, most);
  } else {
    loop.work(0);
  }
  loop.rethrow();
}

void parallel_for_ranges(std::size_t count, std::size_t most, int threads,
                         const std::function<void(std::size_t, std::size_t)>& body) {
  parallel_for((count + most - 1) / most, threads,
               [&](std::size_t i) { body(i * most, std::min((i + 1) * most, count)); });
}

}  // namespace ttrace
