#include "support/forged_trace.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "load/trace_reader.h"
#include "record/hdf5_image.h"

namespace ttrace::test {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void replace_contents(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string error_of(const std::filesystem::path& directory) {
  try {
    read_trace(directory);
  } catch (const InputError& error) {
    std::string text = error.what();
    const std::string prefix = directory.string();
    for (std::size_t at = 0; (at = text.find(prefix)) != text.npos;) text.replace(at, prefix.size(), "DIR");
    return text;
  }
  return {};
}

IndexRow& ForgedTrace::add() {
  const std::uint64_t n = index.rows.size();
  IndexRow row{};
  row.pass = row.kind = 1;
  row.dtype = 2;
  row.ndim = 1;
  row.order = n;
  row.offset = kHeaderBytes + 64 * n;
  row.bytes = 16;
  row.name = index.text.size();
  row.shape = index.shapes.size();
  index.text += fmt::format("t{}", n);
  row.name_length = static_cast<std::uint32_t>(index.text.size() - row.name);
  index.shapes.push_back(4);
  index.rows.push_back(row);
  return index.rows.back();
}

// The image is built for an innocent index of the same size, and the rows are put in afterwards: the
// writer would not make them.
std::string ForgedTrace::error() {
  Index innocent{{}, index.text, index.shapes};
  innocent.rows.resize(index.rows.size());
  for (std::size_t i = 0; i < innocent.rows.size(); ++i) {
    // Distinct empty tensors: nothing of them lies in the file but the row.
    innocent.text += fmt::format("innocent{:08}", i);
    IndexRow& row = innocent.rows[i];
    row.pass = row.kind = 1;
    row.dtype = 2;
    row.ndim = 1;
    row.order = 0xF00DF00DF00DF00D + i;
    row.name = innocent.text.size() - 16;
    row.name_length = 16;
    row.shape = innocent.shapes.size();
    innocent.shapes.push_back(0);
  }
  Hdf5Image image = build_image(run, innocent, data_end, true);
  const std::string_view from(reinterpret_cast<const char*>(innocent.rows.data()),
                              innocent.rows.size() * sizeof(IndexRow));
  const std::size_t at = image.metadata.find(from);
  REQUIRE(at != image.metadata.npos);
  std::memcpy(image.metadata.data() + at, index.rows.data(), from.size());
  put_seal(image.header, read_seal(image.header), image.metadata);
  std::string file(image.metadata_offset, '\0');
  file.replace(0, image.header.size(), image.header);
  replace_contents(directory.path() / "rank-00000.h5", file + image.metadata);
  return error_of(directory.path());
}

}  // namespace ttrace::test
