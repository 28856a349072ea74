#include "record/index_builder.h"

#include <algorithm>
#include <tuple>

#include "numeric/xxh3.h"

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

// `Identity` is a TensorId or an IndexRow.
template <class Identity>
std::uint64_t identity_hash(const Identity& id, std::string_view name) {
  const auto [iteration, microbatch, chunk, pass, kind] = fixed_fields(id);
  const std::uint64_t seed = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(iteration)) << 32 |
                              static_cast<std::uint32_t>(microbatch)) ^
                             (static_cast<std::uint64_t>(chunk) << 16 | static_cast<std::uint64_t>(pass) << 8 | kind);
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

constexpr std::size_t kLeastSlots = 1 << 12;

std::uint32_t upper_half(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

}  // namespace

bool IndexBuilder::contains(const TensorId& id) const {
  if (slots_.empty()) return false;
  const std::uint64_t hash = identity_hash(id, id.name);
  for (std::size_t at = hash % slots_.size(); slots_[at].row_and_one != 0; at = (at + 1) % slots_.size()) {
    if (slots_[at].hash != upper_half(hash)) continue;
    const IndexRow& row = index_.rows[slots_[at].row_and_one - 1];
    if (fixed_fields(row) == fixed_fields(id) && index_.name_of(row) == id.name) return true;
  }
  return false;
}

void IndexBuilder::insert(std::uint64_t hash, std::size_t row) {
  std::size_t at = hash % slots_.size();
  while (slots_[at].row_and_one != 0) at = (at + 1) % slots_.size();
  slots_[at] = {static_cast<std::uint32_t>(row + 1), upper_half(hash)};
}

// Makes room before one row more is added.
void IndexBuilder::make_room() {
  if (2 * (index_.rows.size() + 1) <= slots_.size()) return;
  slots_.assign(std::max(kLeastSlots, 2 * slots_.size()), Slot());
  for (std::size_t row = 0; row < index_.rows.size(); ++row) {
    insert(identity_hash(index_.rows[row], index_.name_of(index_.rows[row])), row);
  }
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
  make_room();
  insert(identity_hash(entry.id, entry.id.name), index_.rows.size());
  index_.rows.push_back(row);
}

void IndexBuilder::place(std::size_t row, std::uint64_t offset, std::uint64_t checksum) {
  index_.rows[row].offset = offset;
  index_.rows[row].checksum = checksum;
}

void IndexBuilder::drop_from(std::size_t row) { index_.rows.resize(row); }

}  // namespace ttrace
