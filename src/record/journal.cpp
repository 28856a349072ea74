#include "record/journal.h"

#include <xxhash.h>

#include <cstring>

#include "record/run_attributes.h"

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
  std::memcpy(&value, in.data(), sizeof value);
  in.remove_prefix(sizeof value);
  return true;
}

std::string framed(const std::string& payload) {
  std::string record;
  put(record, static_cast<std::uint32_t>(payload.size()));
  put(record, static_cast<std::uint64_t>(XXH3_64bits(payload.data(), payload.size())));
  return record + payload;
}

// The next whole record's payload; nothing at the end and at a torn record.
std::optional<std::string_view> take_record(std::string_view& in) {
  std::uint32_t length = 0;
  std::uint64_t checksum = 0;
  if (!take(in, length) || !take(in, checksum) || in.size() < length || length == 0) return std::nullopt;
  const std::string_view payload = in.substr(0, length);
  if (XXH3_64bits(payload.data(), payload.size()) != checksum) return std::nullopt;
  in.remove_prefix(length);
  return payload;
}

std::optional<Entry> parse_entry(std::string_view payload) {
  Entry entry;
  std::uint8_t ndim = 0;
  std::uint32_t name_length = 0;
  const bool fixed = take(payload, entry.id.iteration) && take(payload, entry.id.microbatch) &&
                     take(payload, entry.id.chunk) && take(payload, entry.id.pass) && take(payload, entry.id.kind) &&
                     take(payload, entry.dtype) && take(payload, ndim) && take(payload, entry.order) &&
                     take(payload, entry.offset) && take(payload, entry.bytes) && take(payload, entry.checksum);
  if (!fixed) return std::nullopt;
  entry.shape.resize(ndim);
  for (std::int64_t& size : entry.shape) {
    if (!take(payload, size)) return std::nullopt;
  }
  if (!take(payload, name_length) || payload.size() < name_length) return std::nullopt;
  entry.id.name = payload.substr(0, name_length);
  entry.module_class = payload.substr(name_length);
  return entry;
}

}  // namespace

std::string journal_record(const RunAttributes& run) { return framed("R" + to_json(run)); }

std::string journal_record(const Entry& entry) {
  std::string payload = "T";
  put(payload, entry.id.iteration);
  put(payload, entry.id.microbatch);
  put(payload, entry.id.chunk);
  put(payload, entry.id.pass);
  put(payload, entry.id.kind);
  put(payload, entry.dtype);
  put(payload, static_cast<std::uint8_t>(entry.shape.size()));
  put(payload, entry.order);
  put(payload, entry.offset);
  put(payload, entry.bytes);
  put(payload, entry.checksum);
  for (const std::int64_t size : entry.shape) put(payload, size);
  put(payload, static_cast<std::uint32_t>(entry.id.name.size()));
  payload += entry.id.name;
  payload += entry.module_class;
  return framed(payload);
}

std::optional<Journal> parse_journal(std::string_view bytes) {
  Journal journal;
  bool described = false;
  while (const auto payload = take_record(bytes)) {
    if (payload->front() == 'R') {
      const auto run = attributes_from_json(payload->substr(1));
      if (!run) break;
      journal.run = *run;
      described = true;
    } else {
      const auto entry = payload->front() == 'T' ? parse_entry(payload->substr(1)) : std::nullopt;
      if (!entry || !described) break;
      journal.entries.push_back(*entry);
    }
  }
  if (!described) return std::nullopt;
  return journal;
}

}  // namespace ttrace
