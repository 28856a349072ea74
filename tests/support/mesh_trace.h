// Traces in memory: ranks on a mesh, with fp32 tensors.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mesh.h"
#include "base/trace.h"
#include "numeric/xxh3.h"

namespace ttrace::test {

class MemoryFile : public MappedFile {
 public:
  const std::byte* data() const override { return bytes.data(); }
  std::uint64_t size() const override { return bytes.size(); }
  std::vector<std::byte> bytes;
};

// A trace whose ranks stand where the rank order of `mesh` puts them, all complete, with no tensors.
inline Trace mesh_trace(const std::string& mesh, std::int32_t world_size) {
  const Mesh parsed = parse_mesh(mesh, world_size, "test");
  Trace trace;
  trace.directory = "trace";
  trace.world_size = world_size;
  trace.mesh = parsed;
  for (std::int32_t rank = 0; rank < world_size; ++rank) {
    RankTrace one;
    one.path = "trace/rank-0000" + std::to_string(rank) + ".h5";
    one.rank = rank;
    one.coordinates = coordinates_of(parsed, rank);
    one.complete = true;
    one.file = std::make_shared<MemoryFile>();
    trace.ranks.push_back(std::move(one));
  }
  return trace;
}

inline TensorId tensor_id(Kind kind, std::string name, std::int32_t microbatch = kNoMicrobatch) {
  TensorId id;
  id.kind = kind;
  id.name = std::move(name);
  id.microbatch = microbatch;
  return id;
}

inline TensorId recomputed(TensorId id) {
  id.pass = Pass::kRecompute;
  return id;
}

// Adds a tensor to the rank at `index` of `trace.ranks`. Missing values are 0.
inline void add_tensor(Trace& trace, std::size_t index, TensorId id, Shape shape, std::vector<float> values = {}) {
  RankTrace& rank = trace.ranks[index];
  auto& bytes = std::const_pointer_cast<MemoryFile>(std::static_pointer_cast<const MemoryFile>(rank.file))->bytes;
  values.resize(static_cast<std::size_t>(element_count(shape)), 0);
  Entry entry;
  entry.id = std::move(id);
  entry.shape = std::move(shape);
  entry.order = rank.entries.size();
  entry.offset = bytes.size();
  entry.bytes = values.size() * sizeof(float);
  entry.module_class = "torch.nn.modules.linear.Linear";
  bytes.resize(bytes.size() + entry.bytes);
  if (!values.empty()) std::memcpy(bytes.data() + entry.offset, values.data(), entry.bytes);
  entry.checksum = XXH3_64bits(values.data(), entry.bytes);
  rank.entries.push_back(std::move(entry));
}

// The same of int64.
inline void add_int64(Trace& trace, std::size_t index, TensorId id, Shape shape,
                      const std::vector<std::int64_t>& values) {
  std::vector<float> bits(values.size() * 2);
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(std::int64_t));
  add_tensor(trace, index, std::move(id), {std::ssize(bits)}, bits);
  trace.ranks[index].entries.back().dtype = Dtype::kInt64;
  trace.ranks[index].entries.back().shape = std::move(shape);
}

}  // namespace ttrace::test
