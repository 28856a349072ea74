#include "record/index_builder.h"

#include <xxhash.h>

#include <tuple>

namespace ttrace {
namespace {

// The fields of an identity but the name.
auto fixed_fields(const TensorId& id) {
  return std::tuple(id.iteration, id.microbatch, id.chunk, static_cast<std::uint8_t>(id.pass),
                    static_cast<std::uint8_t>(id.kind));
}

auto fixed_fields(const IndexRow& row) {
  return std::tuple(row.iteration, row.microbatch, row.chunk, row.pass, row.kind);
}

std::size_t identity_hash(const TensorId& id) {
  const std::uint64_t seed = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(id.iteration)) << 32 |
                              static_cast<std::uint32_t>(id.microbatch)) ^
                             (static_cast<std::uint64_t>(id.chunk) << 16 | static_cast<std::uint64_t>(id.pass) << 8 |
                              static_cast<std::uint64_t>(id.kind));
  return XXH3_64bits_withSeed(id.name.data(), id.name.size(), seed);
}

}  // namespace

bool IndexBuilder::contains(const TensorId& id) const {
  const auto [first, last] = rows_.equal_range(identity_hash(id));
  for (auto it = first; it != last; ++it) {
    const IndexRow& row = index_.rows[it->second];
    if (fixed_fields(row) == fixed_fields(id) && index_.name_of(row) == id.name) return true;
  }
  return false;
}

std::uint64_t IndexBuilder::store_text(std::string_view text) {
  const auto known = text_positions_.find(text);
  if (known != text_positions_.end()) return known->second;
  const std::uint64_t position = index_.text.size();
  text_positions_.emplace(text, position);
  index_.text += text;
  return position;
}

void IndexBuilder::add(const Entry& entry, std::string_view mapping) {
  IndexRow row{};
  std::tie(row.iteration, row.microbatch, row.chunk, row.pass, row.kind) = fixed_fields(entry.id);
  row.dtype = stored_dtype(entry);
  row.ndim = static_cast<std::uint8_t>(entry.shape.size());
  row.order = entry.order;
  row.offset = entry.offset;
  row.bytes = entry.bytes;
  row.checksum = entry.checksum;
  row.module = store_text(entry.module_class.get());
  row.module_length = static_cast<std::uint32_t>(entry.module_class.size());
  row.mapping = store_text(mapping);
  row.mapping_length = static_cast<std::uint32_t>(mapping.size());
  row.name = index_.text.size();
  row.name_length = static_cast<std::uint32_t>(entry.id.name.size());
  index_.text += entry.id.name;
  row.shape = index_.shapes.size();
  const std::vector<std::int64_t> shape = stored_shape(entry);
  index_.shapes.insert(index_.shapes.end(), shape.begin(), shape.end());
  rows_.emplace(identity_hash(entry.id), static_cast<std::uint32_t>(index_.rows.size()));
  index_.rows.push_back(row);
}

void IndexBuilder::place(std::size_t row, std::uint64_t offset, std::uint64_t checksum) {
  index_.rows[row].offset = offset;
  index_.rows[row].checksum = checksum;
}

void IndexBuilder::drop_from(std::size_t row) { index_.rows.resize(row); }

}  // namespace ttrace
