#include "format/journal.h"

#include <cstring>

#include "format/run_attributes.h"
#include "numeric/xxh3.h"

namespace ttrace {
namespace {

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Takes a value from the front; false when there is too little left.
template <typename T>
bool take(std::string_view& in, T& value) {
  if (in.size() < sizeof value) return false;
  in.copy(reinterpret_cast<char*>(&value), sizeof value);
  in.remove_prefix(sizeof value);
  return true;
}

// Puts length and checksum before the payload.
std::string frame_record(const std::string& payload) {
  std::string record;
  put(record, static_cast<std::uint32_t>(payload.size()));
  put(record, static_cast<std::uint64_t>(XXH3_64bits(payload.data(), payload.size())));
  return record + payload;
}

// Takes the next record and returns its payload; nothing at the end, and at a record that is cut off or damaged.
std::optional<std::string_view> take_record(std::string_view& in) {
  std::uint32_t length = 0;
  std::uint64_t checksum = 0;
  if (!take(in, length) || !take(in, checksum) || in.size() < length || length == 0) return std::nullopt;
  const std::string_view payload = in.substr(0, length);
  if (XXH3_64bits(payload.data(), payload.size()) != checksum) return std::nullopt;
  in.remove_prefix(length);
  return payload;
}

// Takes a text after its length.
template <typename Text>
bool take_text(std::string_view& in, Text& text) {
  std::uint32_t length = 0;
  if (!take(in, length) || in.size() < length) return false;
  text = in.substr(0, length);
  in.remove_prefix(length);
  return true;
}

void put_text(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint32_t>(text.size()));
  out += text;
}

// Takes the entry and leaves the mapping's text.
std::optional<Entry> take_entry(std::string_view& payload) {
  Entry entry;
  std::uint8_t dtype = 0, ndim = 0;
  const bool fixed = take(payload, entry.id.iteration) && take(payload, entry.id.microbatch) &&
                     take(payload, entry.id.chunk) && take(payload, entry.id.pass) && take(payload, entry.id.kind) &&
                     take(payload, dtype) && take(payload, ndim) && take(payload, entry.order) &&
                     take(payload, entry.offset) && take(payload, entry.bytes) && take(payload, entry.checksum);
  if (!fixed) return std::nullopt;
  std::vector<std::int64_t> shape(stored_shape_size(dtype, ndim));
  for (std::int64_t& size : shape) {
    if (!take(payload, size)) return std::nullopt;
  }
  set_shape(entry, dtype, Shape(shape.begin(), shape.begin() + ndim), shape.data() + ndim);
  std::string name, module_class;
  if (!take_text(payload, name) || !take_text(payload, module_class)) return std::nullopt;
  entry.id.name = std::move(name);
  entry.module_class = std::move(module_class);
  return entry;
}

}  // namespace

std::string journal_record(const RunAttributes& run) { return frame_record("R" + to_json(run)); }

std::string journal_record(const Entry& entry, std::string_view mapping) {
  std::string payload = "T";
  put(payload, entry.id.iteration);
  put(payload, entry.id.microbatch);
  put(payload, entry.id.chunk);
  put(payload, entry.id.pass);
  put(payload, entry.id.kind);
  put(payload, stored_dtype(entry));
  put(payload, static_cast<std::uint8_t>(entry.shape.size()));
  put(payload, entry.order);
  put(payload, entry.offset);
  put(payload, entry.bytes);
  put(payload, entry.checksum);
  for (const std::int64_t size : stored_shape(entry)) put(payload, size);
  put_text(payload, entry.id.name);
  put_text(payload, entry.module_class.get());
  payload += mapping;
  return frame_record(payload);
}

std::optional<Journal> parse_journal(std::string_view bytes) {
  Journal journal;
  bool described = false;
  while (const auto payload = take_record(bytes)) {
    std::string_view rest = payload->substr(1);
    if (payload->front() == 'R') {
      const auto run = attributes_from_json(rest);
      if (!run) break;
      journal.run = *run;
      described = true;
    } else {
      const auto entry = payload->front() == 'T' ? take_entry(rest) : std::nullopt;
      if (!entry || !described) break;
      journal.entries.push_back(*entry);
      journal.mappings.push_back(rest);
    }
  }
  if (!described) return std::nullopt;
  return journal;
}

}  // namespace ttrace
