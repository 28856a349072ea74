// Verifies the checksums of the tensors that are compared, in the same pass over memory: what a tile has read is still
// in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compare/tile_bytes.h"
#include "merge/overlay.h"
#include "numeric/xxh3.h"

namespace ttrace {

// The checksums of the recorded tensors that some overlays read. A checksum covers a tensor's bytes in order, while
// tiles are read in any order and by several threads: what comes too early waits in its buffer for what is before it.
class Checksums {
 public:
  explicit Checksums(const std::vector<Overlay>& overlays);

  // Takes the checksums on by what a tile has read. May be called from several threads at once; a tensor that another
  // thread is busy with is left to it. `may_hold`: buffers may wait; without, what comes too early is left to `finish`.
  void follow(const std::vector<ReadRange>& read, bool may_hold);

  // The tensors, in the order in which the overlays name them. `finish` reads what is left of one, lets go of its
  // buffers, and throws InputError where its bytes are not those that were recorded.
  std::size_t size() const { return tensors_.size(); }
  void finish(std::size_t i);

 private:
  struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  struct Tensor {
    Tensor(const Entry* of, const MappedFile* in) : entry(of), file(in) {}

    // Takes the checksum on by `bytes`, which begin at `offset`, no later than what it has ends.
    void take(const std::byte* bytes, std::uint64_t offset, std::uint64_t size);
    void take_rest();
    // Takes what waits and fits now, and lets go of it.
    void take_waiting(std::unique_lock<std::mutex>& lock);
    const std::byte* data() const { return file->data() + entry->offset; }

    const Entry* entry;
    const MappedFile* file;
    std::mutex mutex;
    bool busy = false;                           // a thread takes the checksum on
    std::uint64_t done = 0;                      // bytes that `state` has
    std::map<std::uint64_t, ReadRange> waiting;  // by offset
    std::unique_ptr<XXH3_state_t, FreeState> state;
  };
  void add(const std::vector<OverlayBox>& boxes);
  void add(const StridedTerm& term);

  std::vector<std::unique_ptr<Tensor>> tensors_;
  std::unordered_map<const Entry*, Tensor*> by_entry_;
  // Holds tensors by first byte and size: they may share their bytes, and then have one checksum.
  std::map<std::pair<const std::byte*, std::uint64_t>, Tensor*> by_bytes_;
};

}  // namespace ttrace
