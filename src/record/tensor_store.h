// The two files of a rank while it records: tensors, and the journal that says where they lie.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "format/format.h"
#include "record/hdf5_image.h"
#include "record/raw_file.h"
#include "ttrace/record/trace_writer.h"

namespace ttrace {

// Members throw RecordError. They are not to be called from two threads at once.
class TensorStore {
 public:
  // Makes both files. Where that fails, neither stays.
  TensorStore(const std::filesystem::path& directory, const RunAttributes& attributes);

  // Appends the attributes anew, which readers of the journal take from its last record of them.
  void describe(const RunAttributes& attributes);

  // Appends the tensor's bytes, then `entry` with their offset and checksum, which it sets, to the journal: what that
  // names is always in the file. A tensor that lies in memory as it does in the file, and whose bytes the file has
  // already, shares them: this is decided by the bytes themselves, which no in-place operation can hide. After so many
  // as kMaxSharing they are stored anew.
  void store(Entry& entry, const TensorView& tensor, std::string_view mapping);

  const std::filesystem::path& path() const { return file_->path(); }
  std::uint64_t data_end() const { return data_end_; }
  void finish(const Hdf5Image& image);  // writes the metadata and then the header, and closes the file
  void remove_journal();

 private:
  struct Stored {
    std::uint64_t offset, bytes, checksum;
    std::uint64_t tensors;  // that have these bytes in common; kMaxSharing at most
  };

  void append_to_journal(const std::string& record);
  // Returns what the file holds of the same bytes and may be shared once more; null where there is nothing.
  Stored* find(std::uint64_t sample, std::string_view bytes);
  bool holds(std::uint64_t offset, std::string_view bytes) const;
  Stored append(const TensorView& tensor, std::uint64_t bytes);

  // The journal is made first: with a trace file alone a reader could not tell an early crash from garbage.
  std::optional<RawFile> journal_, file_;
  std::uint64_t journal_end_ = 0;
  std::uint64_t data_end_ = kHeaderBytes;
  // By the sample of its bytes, the tensor that was stored last with it. What has other bytes of the same sample is
  // stored twice: that costs space, and is rare.
  std::unordered_map<std::uint64_t, Stored> stored_;
};

}  // namespace ttrace
