// Messages about recorded tensors: which file, which of its entries. Process 0 knows them by address, the others by
// what a message says of them; each is sent once a message.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/trace.h"
#include "team/message.h"

namespace ttrace {

template <class Message, class Id>
void transfer_id(Message& message, Id& id) {
  auto& [iteration, microbatch, chunk, pass, kind, name] = id;
  message(iteration, microbatch, chunk, pass, kind, name);
}

class RecordedPacker {
 public:
  explicit RecordedPacker(Packer& packer) : packer_(packer) {}
  void add(const MappedFile& file);
  void add(const Entry& entry);  // without module class and mapping

 private:
  Packer& packer_;
  std::unordered_map<const MappedFile*, std::size_t> files_;
  std::unordered_map<const Entry*, std::size_t> entries_;
};

// The files that other processes have named, mapped once.
class SharedFiles {
 public:
  // Throws InputError where this process sees no such file, or another version of it. The error says on which machine.
  std::shared_ptr<const MappedFile> file(const std::string& path, const std::string& version);

 private:
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;  // by path
};

// Maps as `map_file` does; the error says on which machine there is no such file, since process 0 has one.
std::shared_ptr<const MappedFile> map_shared_file(const std::string& path);

// Takes what a RecordedPacker has put. Entries live as long as this object.
class RecordedUnpacker {
 public:
  RecordedUnpacker(Unpacker& unpacker, SharedFiles& shared) : unpacker_(unpacker), shared_(shared) {}
  RecordedUnpacker(const RecordedUnpacker&) = delete;
  RecordedUnpacker& operator=(const RecordedUnpacker&) = delete;

  const std::shared_ptr<const MappedFile>& next_file();
  const Entry& next_entry();

 private:
  Unpacker& unpacker_;
  SharedFiles& shared_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::deque<Entry> entries_;
};

}  // namespace ttrace
