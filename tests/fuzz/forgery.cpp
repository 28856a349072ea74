#include "forgery.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "numeric/xxh3.h"

namespace ttrace::fuzz {
namespace {

template <typename T>
std::vector<T> table(std::string_view bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

template <typename T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

bool is_inside(std::uint64_t offset, std::uint64_t size, std::uint64_t whole) {
  return offset <= whole && size <= whole - offset;
}

}  // namespace

std::uint64_t take_number(FuzzedDataProvider& input) {
  static constexpr std::array<std::uint64_t, 22> kNumbers = {0,
                                                             1,
                                                             2,
                                                             3,
                                                             4,
                                                             7,
                                                             8,
                                                             16,
                                                             63,
                                                             64,
                                                             255,
                                                             4096,
                                                             65535,
                                                             1u << 31,
                                                             (1ull << 32) - 1,
                                                             1ull << 32,
                                                             1ull << 40,
                                                             1ull << 62,
                                                             (1ull << 63) - 1,
                                                             1ull << 63,
                                                             ~0ull - 63,
                                                             ~0ull};
  const auto choice = input.ConsumeIntegral<std::uint8_t>();
  if (choice < kNumbers.size()) return kNumbers[choice];
  return choice < 128 ? input.ConsumeIntegral<std::uint16_t>() : input.ConsumeIntegral<std::uint64_t>();
}

Forgery::Forgery(std::string_view file) {
  const Seal seal = read_seal(file);
  const auto part = [&](Extent extent) { return file.substr(extent.offset, extent.bytes); };
  data_ = file.substr(0, seal.metadata.offset);
  metadata_ = part(seal.metadata);
  run_ = part(seal.run);
  text_ = part(seal.text);
  rows_ = table<IndexRow>(part(seal.index));
  shapes_ = table<std::int64_t>(part(seal.shapes));
}

std::uint64_t Forgery::add_text(std::string_view text) {
  text_ += text;
  return text_.size() - text.size();
}

void Forgery::edit_row(FuzzedDataProvider& input) {
  if (rows_.empty()) return;
  IndexRow& row = rows_[input.ConsumeIntegral<std::uint8_t>() % rows_.size()];
  const auto field = input.ConsumeIntegral<std::uint8_t>();
  const std::uint64_t number = take_number(input);
  const auto set = [&](auto& value) { value = static_cast<std::remove_reference_t<decltype(value)>>(number); };
  switch (field % 18) {
    case 0:
      return set(row.iteration);
    case 1:
      return set(row.microbatch);
    case 2:
      return set(row.chunk);
    case 3:
      return set(row.pass);
    case 4:
      return set(row.kind);
    case 5:
      return set(row.dtype);
    case 6:
      return set(row.ndim);
    case 7:
      return set(row.order);
    case 8:
      return set(row.offset);
    case 9:
      return set(row.bytes);
    case 10:
      return set(row.checksum);
    case 11:
      return set(row.name);
    case 12:
      return set(row.module);
    case 13:
      return set(row.mapping);
    case 14:
      return set(row.shape);
    case 15:
      return set(row.name_length);
    case 16:
      return set(row.module_length);
    default:
      return set(row.mapping_length);
  }
}

// Puts a text in place of a value of the JSON object, or anywhere.
void Forgery::edit_run(FuzzedDataProvider& input) {
  static constexpr std::array<std::string_view, 10> kKeys = {
      "ttrace_version", "run_id",      "world_size",    "rank",       "axes",
      "aliases",        "coordinates", "compute_dtype", "provenance", "views"};
  const auto choice = input.ConsumeIntegral<std::uint8_t>();
  const std::string text = input.ConsumeRandomLengthString(200);
  if (choice < 128) {
    const std::string key = "\"" + std::string(kKeys[choice % kKeys.size()]) + "\":";
    const std::size_t at = run_.find(key);
    if (at == run_.npos) return;
    const std::size_t begin = at + key.size();
    std::size_t end = begin;
    for (bool quoted = false; end < run_.size() && (quoted || (run_[end] != ',' && run_[end] != '}')); ++end) {
      if (run_[end] == '\\') {
        ++end;
      } else if (run_[end] == '"') {
        quoted = !quoted;
      }
    }
    run_.replace(begin, std::min(end, run_.size()) - begin, text);
  } else if (!run_.empty()) {
    const std::size_t at = input.ConsumeIntegral<std::uint16_t>() % run_.size();
    run_.replace(at, std::min<std::size_t>(choice - 128, run_.size() - at), text);
  }
}

void Forgery::edit(FuzzedDataProvider& input, const Forgery& other) {
  const auto pick = [&](std::size_t size) { return input.ConsumeIntegral<std::uint16_t>() % size; };
  switch (input.ConsumeIntegral<std::uint8_t>() % 10) {
    case 0:
    case 1:
      return edit_row(input);
    case 2: {
      if (rows_.empty()) return;
      IndexRow& row = rows_[pick(rows_.size())];
      const std::string name = input.ConsumeRandomLengthString(300);
      row.name = add_text(name);
      row.name_length = static_cast<std::uint32_t>(name.size());
      return;
    }
    case 3: {
      if (rows_.empty()) return;
      IndexRow& row = rows_[pick(rows_.size())];
      const std::string mapping = input.ConsumeRandomLengthString(1000);
      row.mapping = add_text(mapping);
      row.mapping_length = static_cast<std::uint32_t>(mapping.size());
      return;
    }
    case 4:
      return edit_run(input);
    case 5:
      if (!shapes_.empty()) shapes_[pick(shapes_.size())] = static_cast<std::int64_t>(take_number(input));
      return;
    case 6:
      if (data_.size() > kHeaderBytes) {
        data_[kHeaderBytes + pick(data_.size() - kHeaderBytes)] ^= static_cast<char>(take_number(input));
      }
      return;
    case 7:
      if (!rows_.empty()) rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(pick(rows_.size())));
      return;
    case 8: {
      if (rows_.empty()) return;
      std::swap(rows_[pick(rows_.size())], rows_[pick(rows_.size())]);
      return;
    }
    default: {
      if (other.rows_.empty()) return;
      IndexRow row = other.rows_[pick(other.rows_.size())];
      row.name = add_text(std::string_view(other.text_).substr(row.name, row.name_length));
      row.order = rows_.empty() ? 0 : rows_.back().order + 1;
      rows_.push_back(row);
      return;
    }
  }
}

std::vector<IndexRow> Forgery::honest_rows() const {
  std::vector<IndexRow> rows = rows_;
  for (IndexRow& row : rows) {
    if (is_inside(row.offset, row.bytes, data_.size()))
      row.checksum = XXH3_64bits(data_.data() + row.offset, row.bytes);
  }
  return rows;
}

std::string Forgery::file(bool honest) const {
  std::string metadata = metadata_;
  const auto add = [&](std::string_view bytes) {
    metadata.resize((metadata.size() + 7) / 8 * 8);
    metadata += bytes;
    return Extent{data_.size() + metadata.size() - bytes.size(), bytes.size()};
  };
  Seal seal = read_seal(data_);
  seal.run = add(run_);
  const std::vector<IndexRow> rows = honest ? honest_rows() : rows_;
  seal.index = add(bytes_of(rows));
  seal.text = add(text_);
  seal.shapes = add(bytes_of(shapes_));
  seal.metadata = {data_.size(), metadata.size()};
  std::string header = data_.substr(0, kHeaderBytes);
  put_seal(header, seal, metadata);
  return header + data_.substr(kHeaderBytes) + metadata;
}

void edit_bytes(std::string& file, FuzzedDataProvider& input) {
  if (file.empty()) return;
  const auto choice = input.ConsumeIntegral<std::uint8_t>();
  if (choice == 0) {
    file.resize(input.ConsumeIntegral<std::uint32_t>() % file.size());
    return;
  }
  if (choice < 64) {  // a word of the seal
    const std::uint64_t number = take_number(input);
    const std::size_t at = kSealOffset + choice % (sizeof(Seal) / 8) * 8;
    if (at + sizeof number <= file.size()) std::memcpy(file.data() + at, &number, sizeof number);
  } else {
    file[input.ConsumeIntegral<std::uint32_t>() % file.size()] ^= static_cast<char>(choice);
  }
  if (choice % 2 == 0 || file.size() < kHeaderBytes) return;
  std::string header = file.substr(0, kHeaderBytes);
  const Seal seal = read_seal(header);
  if (seal.metadata.offset < kHeaderBytes || seal.metadata.offset > file.size()) return;
  put_seal(header, seal, std::string_view(file).substr(seal.metadata.offset));
  file.replace(0, kHeaderBytes, header);
}

std::map<Identity, Content> contents_of(std::string_view file) {
  std::map<Identity, Content> contents;
  if (file.size() < kHeaderBytes) return contents;
  const Seal seal = read_seal(file);
  for (const Extent extent : {seal.index, seal.text, seal.shapes}) {
    if (!is_inside(extent.offset, extent.bytes, file.size())) return contents;
  }
  const auto rows = table<IndexRow>(file.substr(seal.index.offset, seal.index.bytes));
  const std::string_view text = file.substr(seal.text.offset, seal.text.bytes);
  const auto shapes = table<std::int64_t>(file.substr(seal.shapes.offset, seal.shapes.bytes));
  for (const IndexRow& row : rows) {
    if (!is_inside(row.name, row.name_length, text.size()) || !is_inside(row.offset, row.bytes, file.size()) ||
        !is_inside(row.shape, row.ndim, shapes.size())) {
      continue;
    }
    const auto first = shapes.begin() + static_cast<std::ptrdiff_t>(row.shape);
    contents[{row.iteration, row.microbatch, row.pass, row.kind, std::string(text.substr(row.name, row.name_length))}] =
        {row.dtype, {first, first + row.ndim}, std::string(file.substr(row.offset, row.bytes))};
  }
  return contents;
}

}  // namespace ttrace::fuzz
