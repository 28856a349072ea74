#include "distribute/recorded.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "base/error.h"
#include "load/mapped_file.h"

namespace ttrace {
namespace {

void transfer_sketch(Packer& message, const std::shared_ptr<const RecordedSketch>& sketch) {
  message(sketch != nullptr);
  if (sketch) message(sketch->edges, sketch->checksum, sketch->is_fingerprint);
}

void transfer_sketch(Unpacker& message, std::shared_ptr<const RecordedSketch>& sketch) {
  if (!message.next<bool>()) return;
  auto taken = std::make_shared<RecordedSketch>();
  message(taken->edges, taken->checksum, taken->is_fingerprint);
  sketch = std::move(taken);
}

template <class Message, class OneEntry>
void transfer_entry(Message& message, OneEntry& entry) {
  auto& [id, dtype, shape, order, offset, bytes, checksum, module_class, mapping, sketch] = entry;
  transfer_id(message, id);
  message(dtype, shape, order, offset, bytes, checksum);
  transfer_sketch(message, sketch);
}

}  // namespace

void RecordedPacker::add(const MappedFile& file) {
  const auto [found, is_new] = files_.try_emplace(&file, files_.size());
  packer_(found->second);
  if (is_new) packer_(file.path(), version_of(file));
}

void RecordedPacker::add(const Entry& entry) {
  const auto [found, is_new] = entries_.try_emplace(&entry, entries_.size());
  packer_(found->second);
  if (is_new) transfer_entry(packer_, entry);
}

std::shared_ptr<const MappedFile> map_shared_file(const std::string& path) {
  try {
    return map_file(path);
  } catch (const InputError& error) {
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    throw InputError(fmt::format("{}, on {}, too, where one of the processes runs", error.what(), host));
  }
}

std::shared_ptr<const MappedFile> SharedFiles::file(const std::string& path, const std::string& version) {
  std::shared_ptr<const MappedFile>& known = files_[path];
  if (!known) {
    std::shared_ptr<const MappedFile> mapped = map_shared_file(path);
    require_version(*mapped, version);
    known = std::move(mapped);
  }
  return known;
}

const std::shared_ptr<const MappedFile>& RecordedUnpacker::next_file() {
  const auto number = unpacker_.next<std::size_t>();
  if (number == files_.size()) {
    std::string path, version;
    unpacker_(path, version);
    files_.push_back(shared_.file(path, version));
  }
  return files_.at(number);
}

const Entry& RecordedUnpacker::next_entry() {
  const auto number = unpacker_.next<std::size_t>();
  if (number == entries_.size()) transfer_entry(unpacker_, entries_.emplace_back());
  return entries_.at(number);
}

}  // namespace ttrace
