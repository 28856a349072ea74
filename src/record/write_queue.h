// Hands tensors to a thread that writes them, in order: a program that records goes on as soon as they are copied.
//
// To wake a thread takes longer than to copy a small tensor. So the thread looks for tensors by itself while they keep
// coming, and sleeps only after a while without any. Nobody is woken who does not sleep.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "record/tensor_store.h"
#include "record/trace_writer.h"

namespace ttrace {

// Members are called by one thread at a time. A fork has the memory of this object and not its thread: there it may
// neither be used nor destroyed.
class WriteQueue {
 public:
  // The thread stores the tensors in `store`, and flushes it 50 times a second. Nobody else uses `store` but after
  // drain() and before the next push(). Copies take at most `capacity` bytes, which are set aside at once.
  WriteQueue(std::size_t capacity, TensorStore& store);
  ~WriteQueue();  // writes what is left
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;

  // Tells whether the copy of a tensor may be in the queue beside others.
  bool has_room_for(std::uint64_t bytes) const { return bytes <= memory_.size() / 2; }

  // Copies the tensor, for which there is room, as soon as enough is stored. Throws what `store` has thrown for an
  // earlier one; what came after that is not stored.
  void push(Entry entry, const TensorView& tensor, std::string_view mapping);

  // Says where a tensor lies in the file.
  struct Place {
    std::uint64_t offset, checksum;
  };
  // Waits until all is flushed. Returns the places of what was stored since the last call, in the order of `push`.
  std::vector<Place> drain();
  // Throws what `store` has thrown, if anything.
  void check();

 private:
  struct Job {
    Entry entry;
    std::string mapping;
    std::size_t begin, end;  // of the copy in `memory_`
  };

  void run();
  bool wait_for_job(std::unique_lock<std::mutex>& lock);
  void store_first(std::unique_lock<std::mutex>& lock);
  bool must_flush() const;
  void flush(std::unique_lock<std::mutex>& lock);
  template <typename Act>
  void act_unlocked(Act act, std::unique_lock<std::mutex>& lock);
  void wait_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_enough);
  std::size_t take_room(std::size_t bytes, std::unique_lock<std::mutex>& lock);

  TensorStore& store_;
  std::vector<std::byte> memory_;  // a ring: copies lie one after the other, and each in one piece
  std::size_t head_ = 0;           // where the next one may begin
  std::mutex mutex_;               // of what follows
  std::condition_variable job_came_, job_done_;
  bool thread_sleeps_ = false, caller_waits_ = false;
  std::deque<Job> jobs_;  // the first is being stored
  std::vector<Place> stored_;
  bool is_flushed_ = true, is_flush_wanted_ = false;
  std::chrono::steady_clock::time_point flushed_at_ = std::chrono::steady_clock::now();
  std::exception_ptr failure_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace ttrace
