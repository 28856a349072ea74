// Verifies the checksums of the tensors that are compared, in the same pass over memory: what a tile has read is still
// in the cache.
#pragma once

#include <xxhash.h>
// The library is built for any x86; its faster variants, which the header chooses among at run time, are three times as
// fast.
#if __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compare/pages.h"
#include "ttrace/merge/overlay.h"

namespace ttrace {

// The checksums of the recorded tensors that some overlays read. A checksum covers a tensor's bytes in order, while
// tiles are read in any order and by several threads: each tile takes the checksum on as far as it has read.
class Checksums {
 public:
  explicit Checksums(const std::vector<Overlay>& overlays);

  // Takes the checksums on to the end of what a tile has read. May be called from several threads at once; a tensor
  // that another thread is busy with is left to it.
  void follow(const std::vector<PageRange>& read);

  // The tensors, in the order in which the overlays name them. `finish` reads what is left of one, and throws
  // InputError where its bytes are not those that were recorded.
  std::size_t size() const { return tensors_.size(); }
  void finish(std::size_t i);

 private:
  struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  struct Tensor {
    Tensor(const Entry* of, const MappedFile* in) : entry(of), file(in) {}

    const Entry* entry;
    const MappedFile* file;
    std::mutex busy;
    std::uint64_t done = 0;  // bytes that `state` has
    std::unique_ptr<XXH3_state_t, FreeState> state;
  };
  void add(const std::vector<OverlayBox>& boxes);
  void add(const StridedTerm& term);
  static void take_to(Tensor& tensor, std::uint64_t end);

  std::vector<std::unique_ptr<Tensor>> tensors_;
  std::unordered_map<const Entry*, Tensor*> by_entry_;
  // By first byte and size: tensors may share their bytes, and then have one checksum.
  std::map<std::pair<const std::byte*, std::uint64_t>, Tensor*> by_bytes_;
};

}  // namespace ttrace
