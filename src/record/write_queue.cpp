#include "record/write_queue.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <csignal>
#include <cstring>
#include <utility>

#include "record/gather.h"

namespace ttrace {
namespace {

constexpr std::size_t kCacheLine = 64;
// The thread looks for tensors this often, and so often in vain before it sleeps: through the pauses inside of a
// training step, not through those between recorded ones.
constexpr std::chrono::milliseconds kLookEvery(1);
constexpr int kLooksInVain = 20;
// A kill of the process costs what was stored since: the journal names nothing later.
constexpr std::chrono::milliseconds kFlushEvery(20);

#ifdef __SSE2__

// A block that is smaller is read by the other thread before it has left the cache.
constexpr std::size_t kLeastStreamedBytes = 1 << 16;

// A large copy goes past the cache: what the program computes with stays in there, and it takes two thirds of the time.
void copy_to_queue(std::byte* to, std::string_view block) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(to) % sizeof(__m128i) == 0;
  if (is_aligned && block.size() >= kLeastStreamedBytes) {
    for (; block.size() >= sizeof(__m128i); block.remove_prefix(sizeof(__m128i)), to += sizeof(__m128i)) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to), _mm_loadu_si128(reinterpret_cast<const __m128i*>(block.data())));
    }
    _mm_sfence();
  }
  std::memcpy(to, block.data(), block.size());
}

#else

void copy_to_queue(std::byte* to, std::string_view block) { std::memcpy(to, block.data(), block.size()); }

#endif

// Signals are for the program: while this lives, a thread that is started gets none.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

WriteQueue::WriteQueue(std::size_t capacity, TensorStore& store) : store_(store), memory_(capacity) {
  const NoSignals none;
  thread_ = std::thread([this] { run(); });
}

WriteQueue::~WriteQueue() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  job_came_.notify_one();
  thread_.join();
}

void WriteQueue::wait_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_enough) {
  if (is_enough()) return;
  job_came_.notify_one();
  caller_waits_ = true;
  job_done_.wait(lock, is_enough);
  caller_waits_ = false;
}

// Returns where `bytes` fit in one piece, once they do.
std::size_t WriteQueue::take_room(std::size_t bytes, std::unique_lock<std::mutex>& lock) {
  std::size_t begin = 0;
  wait_until(lock, [&] {
    if (failure_) return true;
    if (jobs_.empty()) {
      begin = 0;
      return true;
    }
    const std::size_t tail = jobs_.front().begin;
    const bool is_wrapped = head_ <= tail;  // never equal for another reason: a copy has a byte at least
    if (is_wrapped) {
      begin = head_;
      return bytes < tail - head_;
    }
    if (bytes <= memory_.size() - head_) {
      begin = head_;
      return true;
    }
    begin = 0;
    return bytes < tail;
  });
  return begin;
}

void WriteQueue::push(Entry entry, const TensorView& tensor, std::string_view mapping) {
  const std::size_t room = (entry.bytes + kCacheLine) / kCacheLine * kCacheLine;
  std::size_t begin = 0;
  {
    std::unique_lock lock(mutex_);
    begin = take_room(room, lock);
    if (failure_) std::rethrow_exception(failure_);
  }
  // The thread does not look at this part before the job is there.
  std::byte* to = memory_.data() + begin;
  for_each_block(tensor, [&](std::string_view block) {
    copy_to_queue(to, block);
    to += block.size();
  });
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(entry), std::string(mapping), begin, begin + room});
    head_ = begin + room;
    if (thread_sleeps_) job_came_.notify_one();
  }
}

// Returns whether there is a job; false when it is time to flush, or over.
bool WriteQueue::wait_for_job(std::unique_lock<std::mutex>& lock) {
  for (int looks = 0; jobs_.empty() && !is_over_ && !is_flush_wanted_; ++looks) {
    if (must_flush()) break;
    thread_sleeps_ = is_flushed_ && looks >= kLooksInVain;
    if (thread_sleeps_) {
      job_came_.wait(lock);
    } else {
      job_came_.wait_for(lock, kLookEvery);
    }
  }
  thread_sleeps_ = false;
  return !jobs_.empty();
}

// Calls `act` without the lock, unless something has failed before.
template <typename Act>
void WriteQueue::act_unlocked(Act act, std::unique_lock<std::mutex>& lock) {
  if (failure_) return;
  lock.unlock();
  std::exception_ptr failure;
  try {
    act();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  failure_ = failure;
}

void WriteQueue::store_first(std::unique_lock<std::mutex>& lock) {
  Job& job = jobs_.front();  // stays where it is while others are added
  const auto store = [&] {
    // Stores bytes: a sketch has not the shape of its tensor.
    const auto bytes = static_cast<std::int64_t>(job.entry.bytes);
    store_.store(job.entry, {memory_.data() + job.begin, Dtype::kUInt8, {&bytes, 1}, {}}, job.mapping);
  };
  act_unlocked(store, lock);
  if (!failure_) stored_.push_back({job.entry.offset, job.entry.checksum});
  jobs_.pop_front();
  is_flushed_ = false;
}

bool WriteQueue::must_flush() const {
  return !is_flushed_ && std::chrono::steady_clock::now() - flushed_at_ > kFlushEvery;
}

void WriteQueue::flush(std::unique_lock<std::mutex>& lock) {
  act_unlocked([&] { store_.flush(); }, lock);
  is_flushed_ = true;
  is_flush_wanted_ = false;
  flushed_at_ = std::chrono::steady_clock::now();
}

void WriteQueue::run() {
  std::unique_lock lock(mutex_);
  while (!is_over_ || !jobs_.empty() || !is_flushed_) {
    const bool has_job = wait_for_job(lock);
    if (has_job) store_first(lock);
    if (!has_job || must_flush()) flush(lock);
    if (caller_waits_) job_done_.notify_one();
  }
}

std::vector<WriteQueue::Place> WriteQueue::drain() {
  std::unique_lock lock(mutex_);
  is_flush_wanted_ = !jobs_.empty() || !is_flushed_;
  wait_until(lock, [&] { return jobs_.empty() && is_flushed_; });
  return std::exchange(stored_, {});
}

void WriteQueue::check() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace ttrace
