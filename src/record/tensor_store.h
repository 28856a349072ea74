// The two files of a rank while it records: tensors, and the journal that says where they lie.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/format.h"
#include "record/hdf5_image.h"
#include "record/raw_file.h"
#include "record/trace_writer.h"
#include "record/write_buffer.h"

namespace ttrace {

// Members throw RecordError. They are not to be called from two threads at once.
class TensorStore {
 public:
  // Makes both files. Where that fails, neither stays.
  TensorStore(const std::filesystem::path& directory, const RunAttributes& attributes);

  // Appends the attributes anew, which readers of the journal take from its last record of them. Nothing may be
  // pending.
  void describe(const RunAttributes& attributes);

  // Takes the tensor's bytes, and sets the entry's offset and checksum. They are pending until flush(), or in the file
  // before it. A tensor that lies in memory as it does in the file, and whose bytes were taken already, shares them:
  // this is decided by the bytes themselves, which no in-place operation can hide. After so many as kMaxSharing they are
  // stored anew. After a failure, here or in flush(), nothing more may be stored: the first tensors of what was pending
  // are in the files, as many as these have room for.
  void store(Entry& entry, const TensorView& tensor, std::string_view mapping);
  // Writes what is pending, and then its entries to the journal: what that names is always in the file.
  void flush();

  const std::filesystem::path& path() const { return file_->path(); }
  std::uint64_t data_end() const { return data_end_; }
  std::size_t tensors() const { return tensors_; }  // that are in the files: the first that were stored
  void finish(const Hdf5Image& image);              // writes the metadata and then the header, and closes the file
  void remove_journal();

 private:
  struct Stored {
    std::uint64_t offset, bytes, checksum;
    std::uint64_t tensors;  // that have these bytes in common; kMaxSharing at most
  };

  struct Pending {
    std::uint64_t data_end;  // in the file, of its bytes
    std::string record;      // for the journal
  };

  void append_to_journal(std::string_view records);
  // Returns what has the same bytes and may be shared once more; null where there is nothing.
  Stored* find(std::uint64_t sample, std::string_view bytes);
  Stored append(const TensorView& tensor, std::uint64_t bytes);
  void name_in_journal(std::string_view records, std::size_t tensors, std::uint64_t data_end);
  bool can_keep(const Pending& tensor) noexcept;
  void keep_what_fits() noexcept;

  // The journal is made first: with a trace file alone a reader could not tell an early crash from garbage.
  std::optional<RawFile> journal_, file_;
  std::optional<WriteBuffer> buffer_;
  std::uint64_t journal_end_ = 0;
  std::uint64_t data_end_ = kHeaderBytes;  // of the tensors that the journal names
  std::size_t tensors_ = 0;
  std::vector<Pending> pending_;  // in the order in which they were stored
  // Holds, by the sample of its bytes, the tensor that was stored last with it. One that has other bytes of the same
  // sample is stored twice: that costs space, and is rare. The map is in a few large blocks: small ones that stay would
  // lie between the program's tensors, whose memory could not be used again for larger ones.
  std::pmr::monotonic_buffer_resource blocks_;
  std::pmr::unordered_map<std::uint64_t, Stored> stored_{&blocks_};
};

}  // namespace ttrace
