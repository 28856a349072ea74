#include "compare/checksums.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "base/error.h"

namespace ttrace {
namespace {

constexpr std::uint64_t kReadAtOnce = 256 << 10;  // bytes

}  // namespace

Checksums::Checksums(const std::vector<Overlay>& overlays) {
  for (const Overlay& overlay : overlays) {
    add(overlay.boxes);
    for (const auto* replicas : {&overlay.reference_replicas, &overlay.candidate_replicas}) {
      for (const std::vector<OverlayBox>& boxes : *replicas) add(boxes);
    }
  }
}

void Checksums::add(const std::vector<OverlayBox>& boxes) {
  for (const OverlayBox& box : boxes) {
    for (const StridedTerm& term : box.reference) add(term);
    for (const StridedTerm& term : box.candidate) add(term);
  }
}

void Checksums::add(const StridedTerm& term) {
  if (term.file == nullptr || by_entry_.contains(term.entry)) return;
  Tensor*& tensor = by_bytes_[{term.file->data() + term.entry->offset, term.entry->bytes}];
  if (tensor == nullptr || tensor->entry->checksum != term.entry->checksum) {
    tensors_.push_back(std::make_unique<Tensor>(term.entry, term.file));
    tensor = tensors_.back().get();
  }
  by_entry_[term.entry] = tensor;
}

void Checksums::Tensor::take(const std::byte* bytes, std::uint64_t offset, std::uint64_t size) {
  if (offset + size <= done) return;
  if (!state) {
    state.reset(XXH3_createState());
    if (!state) throw std::bad_alloc();
    XXH3_64bits_reset(state.get());
  }
  XXH3_64bits_update(state.get(), bytes + (done - offset), offset + size - done);
  done = offset + size;
}

void Checksums::Tensor::take_waiting(std::unique_lock<std::mutex>& lock) {
  while (!waiting.empty() && waiting.begin()->first <= done) {
    const auto [offset, range] = *waiting.begin();
    waiting.erase(waiting.begin());
    lock.unlock();
    take(range.bytes, offset, static_cast<std::uint64_t>(range.end - range.begin));
    if (range.buffer != nullptr) range.buffer->let_go();
    lock.lock();
  }
}

void Checksums::Tensor::take_rest() {
  TileBuffer buffer;
  while (done < entry->bytes) {
    const std::uint64_t size = std::min(kReadAtOnce, entry->bytes - done);
    const std::byte* begin = data() + done;
    std::byte* copy = buffer.take(size);
    take(file->read(begin, size, copy) ? copy : begin, done, size);
  }
}

void Checksums::follow(const std::vector<ReadRange>& read, bool may_hold) {
  for (const ReadRange& range : read) {
    const auto found = by_entry_.find(range.entry);
    if (found == by_entry_.end()) continue;
    Tensor& tensor = *found->second;
    const auto offset = static_cast<std::uint64_t>(range.begin - tensor.data());
    const auto size = static_cast<std::uint64_t>(range.end - range.begin);
    std::unique_lock lock(tensor.mutex);
    if (tensor.busy || offset > tensor.done) {
      if (range.buffer != nullptr && !may_hold) continue;
      if (!tensor.waiting.emplace(offset, range).second) continue;
      if (range.buffer != nullptr) range.buffer->hold();
      continue;
    }
    tensor.busy = true;
    lock.unlock();
    tensor.take(range.bytes, offset, size);
    lock.lock();
    tensor.take_waiting(lock);
    tensor.busy = false;
  }
}

void Checksums::finish(std::size_t i) {
  Tensor& tensor = *tensors_[i];
  const Entry& entry = *tensor.entry;
  {
    std::unique_lock lock(tensor.mutex);
    tensor.take_waiting(lock);
    for (const auto& [offset, range] : tensor.waiting) {
      if (range.buffer != nullptr) range.buffer->let_go();
    }
    tensor.waiting.clear();
  }
  tensor.take_rest();
  const std::uint64_t checksum =
      tensor.state ? XXH3_64bits_digest(tensor.state.get()) : XXH3_64bits(tensor.file->data(), 0);
  tensor.state.reset();
  if (checksum == entry.checksum) return;
  throw InputError(
      fmt::format("{}: {}: its bytes are not those that were recorded: checksum {:016x}; expected {:016x}, of an "
                  "undamaged file (`ttrace inspect --verify` lists all that is damaged)",
                  tensor.file->path(), to_string(entry.id), checksum, entry.checksum));
}

}  // namespace ttrace
