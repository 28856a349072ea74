// Parses what a safetensors file says of its tensors, and the index of a model in several of them:
//
//   8 bytes: the size of the header, little-endian
//   header:  JSON, {"layers.0.weight": {"dtype": "BF16", "shape": [4, 3], "data_offsets": [0, 24]},
//                   "__metadata__": {...}}; offsets count from the end of the header
//   the tensors, little-endian, row-major
//
//   model.safetensors.index.json: {"weight_map": {"layers.0.weight": "model-00001-of-00002.safetensors"}}
//
// and, in the same words but for the dtype's, which is PyTorch's name, where an import has left tensors in files of other formats (ttrace_import/places.py).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "numeric/dtype.h"
#include "numeric/shape.h"

namespace ttrace {

struct SafetensorsTensor {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  Shape shape;
  std::uint64_t begin = 0;  // in the file
};

// Returns the tensors in the order of their bytes, which lie in the file and apart. Throws InputError (`where` is the
// file), also for a dtype that a trace cannot hold.
std::vector<SafetensorsTensor> parse_safetensors(std::string_view file, const std::string& where);

// A file in which an import has left tensors.
struct FileOfPlaces {
  std::string path;
  std::uint64_t bytes = 0;   // of the file, when it was read
  std::int64_t changed = 0;  // ns since 1970, its last change then
  struct Tensor {
    SafetensorsTensor tensor;
    std::uint64_t order = 0;  // among all tensors of the import, from 1
  };
  std::vector<Tensor> tensors;
};

// Throws InputError, also for a tensor that does not lie in its file.
std::vector<FileOfPlaces> parse_places(std::string_view json, const std::string& where);

// Returns which file of an index has which tensor. Throws InputError.
std::map<std::string, std::string> parse_weight_map(std::string_view json, const std::string& where);

// Returns the whole numbers of a model's config.json by their keys; none where it is no JSON object. Of those that may be
// left out `num_key_value_heads` and `head_dim` are what Hugging Face makes of the others.
std::map<std::string, std::int64_t> parse_model_sizes(std::string_view json);

}  // namespace ttrace
