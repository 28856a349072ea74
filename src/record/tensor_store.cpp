#include "record/tensor_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "format/journal.h"
#include "numeric/xxh3.h"
#include "record/gather.h"

namespace ttrace {
namespace {

// Small enough to be in the processor's cache still when it is copied, after hashing.
constexpr std::size_t kPartBytes = 1 << 18;
// A tensor that is smaller than this costs more to look for than to store.
constexpr std::size_t kLeastSharedBytes = 1 << 10;

using HashState = std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)>;

HashState new_hash() {
  HashState state(XXH3_createState(), XXH3_freeState);
  if (state == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  return state;
}

// Hashes the size and 64 words that are spread over the bytes, of which there are kLeastSharedBytes or more: tensors of
// other values almost always differ in one of them.
std::uint64_t sample_of(std::string_view bytes) {
  std::array<std::uint64_t, 64> words;
  const std::size_t last = bytes.size() - sizeof(std::uint64_t);
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::memcpy(&words[i], bytes.data() + last / (words.size() - 1) * i, sizeof words[i]);
  }
  return XXH3_64bits_withSeed(words.data(), sizeof words, bytes.size());
}

void make_directory(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error) return;
  throw RecordError(error.value() == ENOSPC ? RecordStatus::kFull : RecordStatus::kIo,
                    fmt::format("{}: can't be created: {}", directory.string(), error.message()));
}

}  // namespace

TensorStore::TensorStore(const std::filesystem::path& directory, const RunAttributes& attributes) {
  make_directory(directory);
  journal_.emplace(directory / journal_file_name(attributes.rank));
  try {
    describe(attributes);
    file_.emplace(directory / rank_file_name(attributes.rank));
    buffer_.emplace(*file_, kHeaderBytes);
    // The header's space is taken now: a hole would need it later, when the disk may be full.
    file_->write_at(0, std::string(kHeaderBytes, '\0'));
  } catch (const std::exception&) {
    std::error_code ignored;
    if (file_) std::filesystem::remove(file_->path(), ignored);
    std::filesystem::remove(journal_->path(), ignored);
    throw;
  }
}

void TensorStore::describe(const RunAttributes& attributes) { append_to_journal(journal_record(attributes)); }

void TensorStore::append_to_journal(std::string_view records) {
  try {
    journal_->write_at(journal_end_, records);
  } catch (const RecordError&) {
    journal_->truncate(journal_end_);
    throw;
  }
  journal_end_ += records.size();
}

TensorStore::Stored* TensorStore::find(std::uint64_t sample, std::string_view bytes) {
  const auto found = stored_.find(sample);
  if (found == stored_.end() || found->second.bytes != bytes.size()) return nullptr;
  Stored& stored = found->second;
  return stored.tensors < kMaxSharing && buffer_->holds(stored.offset, bytes) ? &stored : nullptr;
}

TensorStore::Stored TensorStore::append(const TensorView& tensor, std::uint64_t bytes) {
  buffer_->append_zeros_until((buffer_->end() + kDataAlignment - 1) / kDataAlignment * kDataAlignment);
  const std::uint64_t offset = buffer_->end();
  const HashState hash = new_hash();
  for_each_block(tensor, [&](std::string_view block) {
    for (; !block.empty(); block.remove_prefix(std::min(kPartBytes, block.size()))) {
      const std::string_view part = block.substr(0, kPartBytes);
      XXH3_64bits_update(hash.get(), part.data(), part.size());
      buffer_->append(part);
    }
  });
  return {offset, bytes, XXH3_64bits_digest(hash.get()), 1};
}

void TensorStore::store(Entry& entry, const TensorView& tensor, std::string_view mapping) {
  const std::string_view bytes =
      is_row_major(tensor) ? std::string_view(static_cast<const char*>(tensor.data), entry.bytes) : std::string_view();
  const bool may_share = bytes.size() >= kLeastSharedBytes;
  const std::uint64_t sample = may_share ? sample_of(bytes) : 0;
  try {
    Stored* const shared = may_share ? find(sample, bytes) : nullptr;
    const Stored stored = shared ? *shared : append(tensor, entry.bytes);
    entry.offset = stored.offset;
    entry.checksum = stored.checksum;
    pending_.push_back({stored.offset + stored.bytes, journal_record(entry, mapping)});
    if (shared) {
      ++shared->tensors;
    } else if (may_share) {
      stored_[sample] = stored;
    }
  } catch (const std::exception&) {
    keep_what_fits();
    throw;
  }
}

void TensorStore::flush() {
  if (pending_.empty()) return;
  try {
    std::string records;
    for (const Pending& tensor : pending_) records += tensor.record;
    buffer_->write_until(buffer_->end());
    name_in_journal(records, pending_.size(), buffer_->end());
  } catch (const std::exception&) {
    keep_what_fits();
    throw;
  }
  pending_.clear();
}

void TensorStore::name_in_journal(std::string_view records, std::size_t tensors, std::uint64_t data_end) {
  append_to_journal(records);
  tensors_ += tensors;
  data_end_ = std::max(data_end_, data_end);
}

bool TensorStore::can_keep(const Pending& tensor) noexcept {
  try {
    buffer_->write_until(tensor.data_end);
    name_in_journal(tensor.record, 1, tensor.data_end);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void TensorStore::keep_what_fits() noexcept {
  for (const Pending& tensor : std::exchange(pending_, {})) {
    if (!can_keep(tensor)) break;  // nor may a later one be named
  }
  file_->truncate(data_end_);
}

void TensorStore::finish(const Hdf5Image& image) {
  try {
    file_->write_at(image.metadata_offset, image.metadata);
    // The header comes last: until then the file is not a valid HDF5 file, and a reader takes the index from the
    // journal.
    file_->write_at(0, image.header);
    file_->close();
  } catch (const RecordError&) {
    file_->truncate(data_end_);
    throw;
  }
}

void TensorStore::remove_journal() {
  std::error_code error;
  std::filesystem::remove(journal_->path(), error);
  if (error) throw RecordError(RecordStatus::kIo, fmt::format("{}: {}", journal_->path().string(), error.message()));
}

}  // namespace ttrace
