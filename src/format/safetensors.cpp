#include "format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/trace.h"
#include "format/format.h"
#include "format/json_inspection.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // as the library of safetensors has it
constexpr int kDeepest = 64;                             // of `__metadata__`, and what others put into a config.json

constexpr std::pair<std::string_view, Dtype> kDtypes[] = {
    {"F64", Dtype::kFloat64},   {"F32", Dtype::kFloat32},        {"F16", Dtype::kFloat16},
    {"BF16", Dtype::kBFloat16}, {"F8_E4M3", Dtype::kFloat8E4M3}, {"F8_E5M2", Dtype::kFloat8E5M2},
    {"I64", Dtype::kInt64},     {"I32", Dtype::kInt32},          {"I16", Dtype::kInt16},
    {"I8", Dtype::kInt8},       {"U8", Dtype::kUInt8},           {"BOOL", Dtype::kBool}};

[[noreturn]] void refuse(const std::string& where, std::string_view what) {
  throw InputError(fmt::format("{}: {}; expected a whole file of safetensors", where, what));
}

// Returns nothing where the text is no JSON object, nests too deep, or has a key twice.
std::optional<Json> parse_object(std::string_view text) {
  const JsonInspection seen = inspect_json(text);
  if (!seen.is_valid || seen.deepest > kDeepest || seen.twice) return std::nullopt;
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? std::optional(std::move(json)) : std::nullopt;
}

Dtype dtype_of(const std::string& word, const std::string& where) {
  for (const auto& [name, dtype] : kDtypes) {
    if (name == word) return dtype;
  }
  throw InputError(fmt::format("{}: a tensor of dtype {}, which a trace cannot hold", where, printable(word)));
}

// Returns the bytes of a tensor; nothing where it is too large for any file.
std::optional<std::uint64_t> bytes_of(const SafetensorsTensor& tensor) {
  std::int64_t bytes = size_of(tensor.dtype);
  bool is_empty = false;
  for (const std::int64_t size : tensor.shape) {  // a 0 does not hide an absurd size of another dimension
    is_empty |= size == 0;
    if (size < 0 || __builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes)) return std::nullopt;
  }
  return is_empty ? 0 : static_cast<std::uint64_t>(bytes);
}

Dtype dtype_by_name(const std::string& word, const std::string& where) {
  const auto dtype = dtype_from_name(word);
  if (!dtype)
    throw InputError(fmt::format("{}: the dtype {}; expected one that a trace can hold", where, printable(word)));
  return *dtype;
}

// Throws the exceptions of nlohmann::json. `dtype_by` understands the word for the dtype.
SafetensorsTensor read_tensor(const std::string& name, const Json& json, std::uint64_t data, std::uint64_t file_bytes,
                              const std::string& where, Dtype (*dtype_by)(const std::string&, const std::string&)) {
  const std::string named = fmt::format("{}: {}", where, printable(name));
  if (const std::string_view objection = objection_to_name(name); !objection.empty()) {
    throw InputError(fmt::format("{}: the name {}; expected one that a trace can hold", named, objection));
  }
  SafetensorsTensor tensor{name, dtype_by(json.at("dtype").get<std::string>(), named), {}, 0};
  const auto shape = json.at("shape").get<std::vector<std::uint64_t>>();
  const auto offsets = json.at("data_offsets").get<std::vector<std::uint64_t>>();
  if (shape.size() > kMaxDims) refuse(named, fmt::format("{} dimensions, of at most {}", shape.size(), kMaxDims));
  for (const std::uint64_t size : shape) tensor.shape.push_back(static_cast<std::int64_t>(size));
  const auto bytes = bytes_of(tensor);
  const bool is_inside = offsets.size() == 2 && offsets[0] <= offsets[1] && offsets[1] <= file_bytes - data;
  if (!is_inside || !bytes || *bytes != offsets[1] - offsets[0]) {
    refuse(named, "its bytes are not in the file, or not those of its shape");
  }
  tensor.begin = data + offsets[0];
  return tensor;
}

void require_apart(const std::vector<SafetensorsTensor>& tensors, const std::string& where) {
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    const SafetensorsTensor& before = tensors[i - 1];
    if (before.begin + *bytes_of(before) <= tensors[i].begin) continue;
    refuse(where, fmt::format("{} and {} overlap", printable(before.name), printable(tensors[i].name)));
  }
}

}  // namespace

std::vector<SafetensorsTensor> parse_safetensors(std::string_view file, const std::string& where) {
  std::uint64_t header = 0;
  if (file.size() < sizeof header) refuse(where, "cut before its header");
  std::memcpy(&header, file.data(), sizeof header);
  if (header > kMostHeaderBytes || header > file.size() - sizeof header) {
    refuse(where, fmt::format("a header of {} bytes, and {} in the file", header, file.size()));
  }
  const auto json = parse_object(file.substr(sizeof header, header));
  if (!json) refuse(where, "its header is no JSON");
  std::vector<SafetensorsTensor> tensors;
  try {
    for (const auto& [name, described] : json->items()) {
      if (name == "__metadata__") continue;
      tensors.push_back(read_tensor(name, described, sizeof header + header, file.size(), where, dtype_of));
    }
  } catch (const Json::exception&) {
    refuse(where, "its header lacks the dtype, shape or offsets of a tensor");
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  require_apart(tensors, where);
  return tensors;
}

std::vector<FileOfPlaces> parse_places(std::string_view json, const std::string& where) {
  const auto places = parse_object(json);
  if (!places) throw InputError(fmt::format("{}: expected places of tensors as JSON", where));
  std::vector<FileOfPlaces> files;
  try {
    for (const auto& [path, described] : places->items()) {
      FileOfPlaces& file = files.emplace_back();
      file.path = path;
      file.bytes = described.at("bytes").get<std::uint64_t>();
      file.changed = described.at("changed").get<std::int64_t>();
      for (const auto& [name, place] : described.at("tensors").items()) {
        file.tensors.push_back(
            {read_tensor(name, place, 0, file.bytes, path, dtype_by_name), place.at("order").get<std::uint64_t>()});
      }
    }
  } catch (const Json::exception&) {
    throw InputError(fmt::format("{}: expected files with their tensors", where));
  }
  return files;
}

std::map<std::string, std::string> parse_weight_map(std::string_view json, const std::string& where) {
  const std::string expected = fmt::format("{}: expected JSON with a weight_map of names and files", where);
  const auto index = parse_object(json);
  if (!index) throw InputError(expected);
  try {
    return index->at("weight_map").get<std::map<std::string, std::string>>();
  } catch (const Json::exception&) {
    throw InputError(expected);
  }
}

std::map<std::string, std::int64_t> parse_model_sizes(std::string_view json) {
  std::map<std::string, std::int64_t> sizes;
  const auto config = parse_object(json);
  if (!config) return sizes;
  for (const auto& [key, value] : config->items()) {
    if (value.is_number_integer()) sizes[key] = value.get<std::int64_t>();
  }
  const auto heads = sizes.find("num_attention_heads"), hidden = sizes.find("hidden_size");
  if (heads == sizes.end() || heads->second <= 0) return sizes;
  sizes.try_emplace("num_key_value_heads", heads->second);
  if (hidden != sizes.end()) sizes.try_emplace("head_dim", hidden->second / heads->second);
  return sizes;
}

}  // namespace ttrace
