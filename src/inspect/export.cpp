#include "inspect/export.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "host/replaced_file.h"
#include "merge/elements.h"
#include "merge/values.h"
#include "numeric/convert.h"

namespace ttrace {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const Elements& tensor) {
  Bytes bytes(static_cast<std::size_t>(tensor.bytes()));
  tensor.copy_to(bytes.data());
  return bytes;
}

using Contents = std::map<std::string, Elements>;  // by key

std::string_view text_of(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::string_view safetensors_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
      return "F64";
    case Dtype::kFloat32:
      return "F32";
    case Dtype::kFloat16:
      return "F16";
    case Dtype::kBFloat16:
      return "BF16";
    case Dtype::kFloat8E4M3:
      return "F8_E4M3";
    case Dtype::kFloat8E5M2:
      return "F8_E5M2";
    case Dtype::kInt8:
      return "I8";
    case Dtype::kInt16:
      return "I16";
    case Dtype::kInt32:
      return "I32";
    case Dtype::kInt64:
      return "I64";
    case Dtype::kUInt8:
      return "U8";
    case Dtype::kBool:
      return "BOOL";
  }
  return "";
}

// The size of the header in 8 bytes, the header in JSON, the elements.
void write_safetensors(const Contents& contents, ReplacedFile& file) {
  std::string text = "{";
  std::int64_t offset = 0;
  for (const auto& [key, tensor] : contents) {
    const std::int64_t end = offset + tensor.bytes();
    const nlohmann::ordered_json about = {
        {"dtype", safetensors_name(tensor.dtype())}, {"shape", tensor.shape()}, {"data_offsets", {offset, end}}};
    text += (offset == 0 && text.size() == 1 ? "" : ",") + nlohmann::json(key).dump() + ":" + about.dump();
    offset = end;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the elements begin at a multiple of 8
  const std::uint64_t size = text.size();
  file.write({reinterpret_cast<const char*>(&size), sizeof size});
  file.write(text);
  for (const auto& [key, tensor] : contents) file.write(text_of(bytes_of(tensor)));
}

bool is_known_to_numpy(Dtype dtype) {
  return dtype != Dtype::kBFloat16 && dtype != Dtype::kFloat8E4M3 && dtype != Dtype::kFloat8E5M2;
}

// The first bytes of an .npy file, version 1.0.
std::string npy_header(Dtype dtype, const Shape& shape) {
  const char letter = dtype == Dtype::kBool ? 'b' : dtype == Dtype::kUInt8 ? 'u' : is_floating(dtype) ? 'f' : 'i';
  std::string sizes;
  for (const std::int64_t size : shape) sizes += fmt::format("{}, ", size);
  std::string text = fmt::format("{{'descr': '{}{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                 size_of(dtype) == 1 ? '|' : '<', letter, size_of(dtype), sizes);
  constexpr std::size_t kMagic = 10;  // with the version and the size of the text
  text.resize((kMagic + text.size() + 1 + 63) / 64 * 64 - kMagic, ' ');
  text.back() = '\n';
  const std::string size = {static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return std::string("\x93NUMPY\x01\x00", 8) + size + text;
}

Bytes as_float32(const Bytes& bytes, Dtype dtype) {
  const auto count = static_cast<std::int64_t>(bytes.size()) / size_of(dtype);
  Values values(static_cast<std::size_t>(count));
  widen(bytes.data(), dtype, count, values.data());
  Bytes wide(static_cast<std::size_t>(count * size_of(Dtype::kFloat32)));
  narrow(values.data(), Dtype::kFloat32, count, wide.data());
  return wide;
}

// Where an archive writes, and what stopped it: no exception crosses libarchive.
struct Sink {
  ReplacedFile& file;
  std::exception_ptr error;
};

la_ssize_t put(archive* /*archive*/, void* data, const void* bytes, std::size_t size) {
  Sink& sink = *static_cast<Sink*>(data);
  try {
    sink.file.write({static_cast<const char*>(bytes), size});
    return static_cast<la_ssize_t>(size);
  } catch (...) {
    sink.error = std::current_exception();
    return -1;
  }
}

// A zip file that is stored, not compressed: NumPy's own choice.
void write_npz(const Contents& contents, ReplacedFile& output) {
  const std::unique_ptr<archive, int (*)(archive*)> file(archive_write_new(), archive_write_free);
  Sink sink{output, nullptr};
  const auto require = [&](bool is_done) {
    if (sink.error) std::rethrow_exception(sink.error);
    if (!is_done) throw InputError(fmt::format("{}: {}", output.path().string(), archive_error_string(file.get())));
  };
  require(archive_write_set_format_zip(file.get()) == ARCHIVE_OK);
  require(archive_write_zip_set_compression_store(file.get()) == ARCHIVE_OK);
  require(archive_write_set_bytes_in_last_block(file.get(), 1) == ARCHIVE_OK);  // no blanks behind it
  require(archive_write_open2(file.get(), &sink, nullptr, put, nullptr, nullptr) == ARCHIVE_OK);
  const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(), archive_entry_free);
  for (const auto& [key, tensor] : contents) {
    const bool is_widened = !is_known_to_numpy(tensor.dtype());
    const Dtype dtype = is_widened ? Dtype::kFloat32 : tensor.dtype();
    const std::string header = npy_header(dtype, tensor.shape());
    const Bytes recorded = bytes_of(tensor);
    const Bytes& bytes = is_widened ? as_float32(recorded, tensor.dtype()) : recorded;
    archive_entry_clear(entry.get());
    archive_entry_set_pathname_utf8(entry.get(), (key + ".npy").c_str());
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), 0644);
    archive_entry_set_mtime(entry.get(), 315532800, 0);  // 1980-01-01, the first day of zip: the same bytes every time
    archive_entry_set_size(entry.get(), static_cast<la_int64_t>(header.size() + bytes.size()));
    require(archive_write_header(file.get(), entry.get()) == ARCHIVE_OK);
    require(archive_write_data(file.get(), header.data(), header.size()) == static_cast<la_ssize_t>(header.size()));
    require(archive_write_data(file.get(), bytes.data(), bytes.size()) == static_cast<la_ssize_t>(bytes.size()));
  }
  require(archive_write_close(file.get()) == ARCHIVE_OK);
}

}  // namespace

std::string export_key(const TensorId& id) {
  std::string key = fmt::format("iteration-{}/", id.iteration);
  if (id.microbatch != kNoMicrobatch) key += fmt::format("microbatch-{}/", id.microbatch);
  key += name_of(id.kind);
  if (id.pass == Pass::kRecompute) key += "-recompute";
  key += '/';
  for (const char letter : printable(id.name)) {
    if (letter == '/') {
      key += "\\x2f";  // no part of a path: archives are unpacked
    } else {
      key += letter;
    }
  }
  return key;
}

void export_tensors(const std::vector<const LogicalTensor*>& tensors, const std::filesystem::path& output) {
  const bool is_npz = output.extension() == ".npz";
  if (!is_npz && output.extension() != ".safetensors") {
    throw InputError(
        fmt::format("-o '{}': no known format; expected a name that ends in .safetensors or .npz", output.string()));
  }
  ReplacedFile file(output);
  Contents contents;
  for (const LogicalTensor* tensor : tensors) {
    const std::string key = export_key(tensor->id);
    if (!contents.emplace(key, *tensor).second) {
      throw InputError(fmt::format("{}: two tensors of this name; expected names that differ when printed", key));
    }
  }
  is_npz ? write_npz(contents, file) : write_safetensors(contents, file);
  file.finish();
}

}  // namespace ttrace
