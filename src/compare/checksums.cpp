#include "compare/checksums.h"

#include <fmt/format.h>

#include <new>

#include "ttrace/error.h"

namespace ttrace {

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

void Checksums::take_to(Tensor& tensor, std::uint64_t end) {
  if (end <= tensor.done) return;
  if (!tensor.state) {
    tensor.state.reset(XXH3_createState());
    if (!tensor.state) throw std::bad_alloc();
    XXH3_64bits_reset(tensor.state.get());
  }
  const std::byte* data = tensor.file->data() + tensor.entry->offset;
  XXH3_64bits_update(tensor.state.get(), data + tensor.done, end - tensor.done);
  tensor.done = end;
}

void Checksums::follow(const std::vector<PageRange>& read) {
  for (const PageRange& range : read) {
    const auto found = by_entry_.find(range.entry);
    if (found == by_entry_.end()) continue;
    Tensor& tensor = *found->second;
    const std::unique_lock lock(tensor.busy, std::try_to_lock);
    if (!lock) continue;
    const std::byte* data = tensor.file->data() + tensor.entry->offset;
    take_to(tensor, static_cast<std::uint64_t>(range.end - data));
  }
}

void Checksums::finish(std::size_t i) {
  Tensor& tensor = *tensors_[i];
  const Entry& entry = *tensor.entry;
  take_to(tensor, entry.bytes);
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
